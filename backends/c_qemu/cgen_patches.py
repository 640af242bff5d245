"""Where emx-onnx-cgen's templates round otherwise than onnxruntime, or compute in double: patched while loading.

The C must give the bits of onnxruntime 1.31.1's Linux wheel on x86-64 with AVX2 (AVX-512 gives the same), in float:

- conv, QGemm: `nearbyint(float(acc) * (a_scale * b_scale / y_scale)) + zero_point`. QGemm in double differs by one
  in about 1e-5 of the outputs, and both cost software doubles on a Cortex-M4.
- add: two fused multiply-adds of the raw integers onto one constant, the constant fused once as well (MLAS,
  qladd_avx2.cpp). Without an FPU fmaf is a call, which newlib computes in double: the sum fits its 53 bits.
- sigmoid: MLAS's rational function (logistic.cpp, LogisticKernelFma3.S), all steps fused; expf differs near ties.
- sigmoid, leaky ReLU, concat: rounded to even first, the zero point is added to the integer (quantize.cpp).
- average pool: a float sum of real values, row by row, the zero point added before rounding (qlinear_pool.cc); one
  window of the image's size is a global pool there: an integer sum, rounded first.

tests/backends/c_qemu/test_operators.py holds every operator to this. The float average pool is patched to need no
stack, the float concat because its output may lie over its inputs.
"""

import functools
from typing import Any

from jinja2 import BaseLoader, Environment, PackageLoader

from automcu_ray.core.errors import ToolchainError


def _horner(variable: str, *coefficients: str) -> str:
    return functools.reduce(lambda text, coefficient: f"fmaf({variable}, {text}, {coefficient})", coefficients)


# Powers of x squared, highest first; the numerator is this times x.
_NUMERATOR = _horner(
    "x2",
    "4.37031012579801e-11f",
    "1.15627324459942e-07f",
    "6.08574864600143e-05f",
    "8.51377133304701e-03f",
    "2.48287947061529e-01f",
)
_DENOMINATOR = _horner(
    "x2",
    "6.10247389755681e-13f",
    "5.76102136993427e-09f",
    "6.29106785017040e-06f",
    "1.70198817374094e-03f",
    "1.16817656904453e-01f",
    "9.93151921023180e-01f",
)

# Of the float average pool: a window of floats on the stack, 4 KB for a global pool of 32 x 32, then summed in pairs.
_PAIRS = """
                    {{ c_type }} acc = {{ zero_literal }};
                    if (count > 0) {
                        idx_t reduce_count = count;
                        while (reduce_count > 1) {
                            idx_t next = 0;
                            for (idx_t i = 0; i + 1 < reduce_count; i += 2) {
                                values[next++] = values[i] + values[i + 1];
                            }
                            if (reduce_count % 2) {
                                values[next++] = values[reduce_count - 1];
                            }
                            reduce_count = next;
                        }
                        acc = values[0];
                    }"""

PATCHES: dict[str, tuple[tuple[str, str], ...]] = {
    "average_pool_op.c.j2": (
        ("\n" + " " * 20 + "{{ c_type }} values[{{ kernel_h * kernel_w }}];", "\n" + _PAIRS.splitlines()[1]),
        (_PAIRS, ""),
        ("\n" + " " * 32 + "values[count++] = {{ input0 }}", "\n" + " " * 32 + "++count, acc += {{ input0 }}"),
        ("\n" + " " * 32 + "values[count++] = {{ zero", "\n" + " " * 32 + "++count, acc += {{ zero"),
    ),
    "concat_op.c.j2": (("memcpy(", "memmove("),),
    "qlinear_add_op.c.j2": (
        (
            "input0_scale_value = ({{ compute_type }}){{ input0_scale_expr }};",
            "ratio0 = {{ input0_scale_expr }} / {{ output_scale_expr }};",
        ),
        (
            "input1_scale_value = ({{ compute_type }}){{ input1_scale_expr }};",
            "ratio1 = {{ input1_scale_expr }} / {{ output_scale_expr }};",
        ),
        ("    const {{ compute_type }} output_scale_value = ({{ compute_type }}){{ output_scale_expr }};\n", ""),
        ("const int32_t input0_zero = (int32_t)", "const {{ compute_type }} zero0 = "),
        ("const int32_t input1_zero = (int32_t)", "const {{ compute_type }} zero1 = "),
        (
            "output_zero = ({{ compute_type }}){{ output_zero_expr }};",
            "fixed = {{ output_zero_expr }} - fmaf(ratio0, zero0, ratio1 * zero1);",
        ),
        (
            "((({{ compute_type }})((int32_t){{ input0_index_expr }} - input0_zero)) * input0_scale_value)",
            "{{ input0_index_expr }}",
        ),
        (
            "((({{ compute_type }})((int32_t){{ input1_index_expr }} - input1_zero)) * input1_scale_value)",
            "{{ input1_index_expr }}",
        ),
        (
            "(input0_real + input1_real) / output_scale_value + output_zero;",
            "fmaf(input0_real, ratio0, fmaf(input1_real, ratio1, fixed));",
        ),
        ("input0_real", "value0"),
        ("input1_real", "value1"),
    ),
    "qlinear_average_pool_op.c.j2": (
        (
            "scale = (({{ compute_type }}){{ input_scale_expr }}) / (({{ compute_type }}){{ output_scale_expr }});",
            "x_scale = {{ input_scale_expr }}, y_scale = {{ output_scale_expr }};\n"
            "{% set whole = (kernel_d, kernel_h, kernel_w) == (in_d, in_h, in_w)"
            " and out_d * out_h * out_w == 1 and not (pad_front or pad_top or pad_left) %}",
        ),
        ("int32_t acc = 0;", "{{ 'int32_t' if whole else compute_type }} acc = 0;"),
        ("acc += ((int32_t)", "acc += {{ '' if whole else 'x_scale * (float)' }}((int32_t)"),
        ("]) - input_zero;", "] - input_zero);"),
        (
            "((({{ compute_type }})acc) / ({{ compute_type }})denom)",
            "(acc {{ '* (x_scale / (y_scale * (float)denom))' if whole else '/ (float)denom' }})",
        ),
        (
            """(int32_t){{ "roundf" if compute_type == "float" else "round" }}(mean * scale) + output_zero;""",
            "(int32_t){{ 'nearbyintf(mean) + output_zero' if whole"
            " else 'nearbyintf(mean / y_scale + (float)output_zero)' }};",
        ),
    ),
    "qlinear_concat_op.c.j2": (
        ("real_val / y_scale_val + y_zero_val;", "real_val / y_scale_val;"),
        ("compute_dtype) }}(scaled);", "compute_dtype) }}(scaled) + y_zero_val;"),
    ),
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
    "qlinear_unary_op.c.j2": (
        (
            "float result = 1.0f / (1.0f + expf(-dequant));",
            "const float x = dequant < -18.0f ? -18.0f : dequant > 18.0f ? 18.0f : dequant;\n"
            "        const float x2 = x * x;\n"
            f"        const float result = x * {_NUMERATOR} / {_DENOMINATOR} + 0.5f;",
        ),
        (
            "float requant = result / y_scale_val + y_zero_val;",
            "const float requant = nearbyintf(result / y_scale_val) + y_zero_val;",
        ),
        ("(int32_t)nearbyintf(requant)", "(int32_t)requant"),
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
