"""What all errors share."""

from automcu_ray.core.errors import ConfigError, unknown_name


def test_a_long_quotation_loses_its_middle_and_keeps_what_was_found_and_what_to_do() -> None:
    said = str(unknown_name("searcher", "9" * 5000, ["random"]))
    assert said.startswith("unknown searcher '999") and said.endswith("known: random.") and len(said) < 2500


def test_others_are_said_whole() -> None:
    assert str(ConfigError("x" * 2400)) == "x" * 2400
