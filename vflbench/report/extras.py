"""What a section has beside the usual tables because of what was run: a matrix of attacks, known labels, solvers, ..."""

from vflbench.report import group
from vflbench.report.experiments import experiment_tables
from vflbench.report.gains import gain_table
from vflbench.report.known_labels import known_labels_table
from vflbench.report.sections import Section
from vflbench.report.strongest import strongest_table
from vflbench.results.table_formats import Table


def extra_tables(section: Section) -> list[Table]:
    """Those that have rows. In none of them is a value averaged over more than the seeds of one setting."""
    made = [make(section) for make in (strongest_table, known_labels_table, gain_table)]
    how = {"x": section.x, "y": section.y, "layer": section.layer or "cut", "by": section.by}
    made += [table for of in group.sections(section.runs, **how) for table in experiment_tables(of)]
    return [table for table in made if table.rows]
