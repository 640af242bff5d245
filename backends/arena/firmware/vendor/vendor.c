/* The harness on a board that its vendor's tools build for: buffers, and net() with what belongs to a run of it.
 *
 * Nothing guards the harness here: memory protection is the vendor's system's affair. -D: INPUT_BYTES, OUTPUT_BYTES.
 */
#include "app.h"
#include "arena.h"
#include "port.h"

#define TEXT(value) #value
#define END_OF(name, bytes) ".globl " name "_end\n.set " name "_end, " name "_start + " TEXT(bytes) "\n"

uint8_t _input_start[INPUT_BYTES] __attribute__((aligned(8)));
uint8_t _output_start[OUTPUT_BYTES] __attribute__((aligned(8)));
__asm__(END_OF("_input", INPUT_BYTES) END_OF("_output", OUTPUT_BYTES));

__attribute__((weak)) void app_begin(void) {
}

__attribute__((weak)) void app_idle(void) {
}

void guard_init(void) {
    port_begin();
    app_begin();
    arena_console();
}

void guard_run(const void *input, void *output) {
    net(input, output);
    port_deliver(output, OUTPUT_BYTES);
}
