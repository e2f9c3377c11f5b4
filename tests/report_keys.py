"""Reports of commands against the list of keys."""

from sw.commands.keys import KEYS


def check_keys(command, report):
    """The report has the keys that are listed for the command, and those inside it are listed."""
    assert set(report) == {k for k, (commands, _) in KEYS.items() if command in commands.split()}
    for epoch in report.get("epochs", []):
        assert set(epoch) <= set(KEYS)
    for part in (*(report.get("phases") or []), report.get("vector") or {}):
        assert set(part) <= set(KEYS)
