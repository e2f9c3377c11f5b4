from scripts import reference


def test_generated_pages_are_up_to_date():
    assert reference.main(["--check"]) == 0
