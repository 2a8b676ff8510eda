"""What a section has beside the usual tables because of what was run: a matrix of attacks, known labels, solvers, ..."""

from vflbench.report.gains import gain_table
from vflbench.report.known_labels import known_labels_table
from vflbench.report.matrix import matrix_table
from vflbench.report.price_of_privacy import price_table
from vflbench.report.sections import Section
from vflbench.report.solver_tables import solver_tables
from vflbench.report.split_guard_alarms import alarm_table
from vflbench.report.strongest import strongest_table
from vflbench.results.table_formats import Table


def extra_tables(section: Section) -> list[Table]:
    """Those that have rows. In none of them is a value averaged over more than the seeds of one setting."""
    makers = (matrix_table, strongest_table, known_labels_table, gain_table, price_table, alarm_table)
    made = [*(make(section) for make in makers), *solver_tables(section)]
    return [table for table in made if table.rows]
