"""Two of emx-onnx-cgen's float templates, patched while loading.

The average pool is patched to need no stack, the concatenation because its output may lie over its inputs.
"""

from typing import Any

from jinja2 import BaseLoader, Environment, PackageLoader

from automcu_ray.core.errors import ToolchainError

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
