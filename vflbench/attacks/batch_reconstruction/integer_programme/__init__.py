"""One binary batch with a given Gram matrix, from an integer programme that HiGHS, CBC or CP-SAT solves."""
