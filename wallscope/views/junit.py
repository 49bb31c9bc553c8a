"""Gates as JUnit XML, which CI systems show as tests."""

from xml.etree import ElementTree as ET

from wallscope.model.comparison import Comparison
from wallscope.render.foreign import visible
from wallscope.views.comparison_phrases import describe_change


def junit(comparison: Comparison) -> str:
    """A test case a gate; without gates one, which fails by a regression."""
    cases = [(gate.gate, gate.held, gate.evidence) for gate in comparison.gates]
    if not cases:
        is_held = comparison.verdict not in {"regression", "incomparable"}
        cases = [("verdict", is_held, f"{comparison.verdict}: {describe_change(comparison)}")]
    failed = sum(not held for _, held, _ in cases)
    suite = ET.Element(
        "testsuite", name="wallscope diff", tests=str(len(cases)), failures=str(failed), errors="0"
    )
    for name, held, evidence in cases:
        case = ET.SubElement(suite, "testcase", classname="wallscope.diff", name=visible(name))
        if held:
            ET.SubElement(case, "system-out").text = visible(evidence, most=500)
        else:
            ET.SubElement(case, "failure", message=visible(evidence, most=500)).text = visible(
                describe_change(comparison), most=1_000
            )
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"
