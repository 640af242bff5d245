import pytest
from pydantic import ValidationError

from automcu_ray.networks.candidate import Candidate


@pytest.mark.parametrize("kind", ["spec", "cell", "code"])
@pytest.mark.parametrize("network", [True, 3, [1], {"backbone": 1}])
def test_what_is_no_network_is_refused_by_name(kind: str, network: object) -> None:
    with pytest.raises(ValidationError, match="network"):
        Candidate.model_validate({"number": 1, "hash": "ab", kind: network})
