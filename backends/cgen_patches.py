"""Where emx-onnx-cgen's templates round otherwise than onnxruntime, or compute in double: patched while loading.

onnxruntime requantises in float: `nearbyint(float(acc) * (a_scale * b_scale / y_scale)) + zero_point`. Its
QGemm in double differs by one in about 1e-5 of the outputs, and both cost software doubles on a Cortex-M4.
"""

from typing import Any

from jinja2 import BaseLoader, Environment, PackageLoader

from automcu_ray.errors import ToolchainError

PATCHES: dict[str, tuple[tuple[str, str], ...]] = {
    "qlinear_conv_op.c.j2": (("scalar_fn(SF.NEARBYINT, round_dtype)", "scalar_fn(SF.NEARBYINT, compute_dtype)"),),
    "qgemm_op.c.j2": (
        ("{{ compute_type }}", "float"),
        ("int64_t acc = 0;", "int32_t acc = 0;"),
        ("(int64_t)(a_val - a_zero) * (int64_t)(b_val - b_zero)", "(a_val - a_zero) * (b_val - b_zero)"),
        ("(int64_t){{ input_c }}", "{{ input_c }}"),
        (
            "float result = {{ alpha_literal }} * a_scale_val * b_scale_val * (float)acc;",
            "const float scale = (float){{ alpha_literal }} * a_scale_val * b_scale_val"
            "{% if has_y_scale %} / y_scale_val{% endif %};\n"
            "            const float result = (float)acc * scale;",
        ),
        ("float scaled = result / y_scale_val + (float)y_zero;", ""),
        (
            "int64_t quantized = (int64_t){{ scalar_fn(SF.LLRINT, compute_dtype) }}(scaled);",
            "float quantized = {{ scalar_fn(SF.NEARBYINT, ST.F32) }}(result) + (float)y_zero;",
        ),
        ("(int64_t){{ min_literal }}", "{{ min_literal }}"),
        ("(int64_t){{ max_literal }}", "{{ max_literal }}"),
    ),
}


class PatchedTemplates(BaseLoader):
    """emx-onnx-cgen's own templates, with `PATCHES` applied."""

    def __init__(self) -> None:
        self.package = PackageLoader("emx_onnx_cgen", "templates")

    def get_source(self, environment: Environment, template: str) -> tuple[str, str | None, Any]:
        """Return text, file and freshness of a template, as Jinja asks.

        Raises:
            ToolchainError: the text to replace is not there: this version of emx-onnx-cgen is not supported.
        """
        text, file, fresh = self.package.get_source(environment, template)
        for old, new in PATCHES.get(template, ()):
            if old not in text:
                raise ToolchainError(f"emx-onnx-cgen's {template} should contain {old!r}: unsupported version.")
            text = text.replace(old, new)
        return text, file, fresh
