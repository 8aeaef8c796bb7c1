"""A fault's proof in a few words."""

import pytest

from tribunal.results.report.proofs import gist


@pytest.mark.parametrize(("proof", "words"), [
    pytest.param('{"state":"stopped","fenced_meanwhile":true}', "state stopped, fenced meanwhile", id="facts"),
    pytest.param('{"cut":{"3->1":true,"3->2":true,"1->3":false}}', "cut 2 of 3", id="of several how many"),
    pytest.param('{"service":{"holds":true,"seen":"unfenced","took_ms":20}}', "unfenced", id="what was seen"),
    pytest.param('{"seen":"registered","took_ms":0,"incarnation":"9b"}', "registered", id="what was seen, by itself"),
    pytest.param('{"alive":false,"lost_bytes":12345}', "not alive, lost bytes 12,345", id="no, and figures"),
    pytest.param('{"a":1,"b":2,"c":3,"d":4,"e":5}', "a 1, b 2, c 3, d 4", id="no more than a few"),
    pytest.param('{"nested":{"deep":{"x":1}},"list":[1,2]}', "", id="nothing short"),
    pytest.param(None, "", id="none"),
    pytest.param("Permission denied", "", id="words of a machine"),
    pytest.param("[1]", "", id="no object"),
    pytest.param('{"error":"' + "x" * 500 + '"}', "error " + "x" * 54 + " …", id="long"),
])  # fmt: skip
def test_a_proof_has_a_gist(proof: str | None, words: str) -> None:
    assert gist(proof) == words
