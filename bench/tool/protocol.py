"""The line protocol of bench_vm.erl: one record a line, its fields separated by tabs."""

FIELDS = {
    "about": ("experiment", "key", "value"),
    "point": ("experiment", "point", "flags", "seconds", "subjects"),
    "failed": ("experiment", "text"),
    "vm": ("release", "erts", "schedulers", "flavor", "wordsize"),
    "start": ("experiment", "point"),
    "sample": ("experiment", "point", "subject", "row", "figure"),
    "error": ("experiment", "point", "subject", "text"),
    "done": ("experiment", "point"),
}


def parse(line):
    """The record of a line, as a dictionary with the key `record`, or None if the line is no record."""
    kind, *values = line.rstrip("\n").split("\t")
    fields = FIELDS.get(kind)
    if fields is None or len(fields) != len(values):
        return None
    record = dict(zip(fields, values), record=kind)
    try:
        for number in ("seconds", "figure"):
            if number in record:
                record[number] = float(record[number])
    except ValueError:
        return None
    if "subjects" in record:
        record["subjects"] = record["subjects"].split(";")
    return record


def axes(text):
    """The pairs of `key=value,key=value`, numbers as numbers."""
    return tuple((key, value_of(value)) for key, _, value in (pair.partition("=") for pair in text.split(",") if pair))


def value_of(text):
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text
