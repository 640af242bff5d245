/* The arena's harness: the one serial line protocol of emulated and real boards.
 *
 *   firmware: ARENA 1 <input bytes> <output bytes> <ticks of the boot delay>\n        numbers in hex
 *   host:     'A' 'R' 'N' ':' <nonce, u32> <payload bytes, u32> <payload> <CRC-32 of the three>    little-endian
 *   firmware: OUT <nonce> <runs since the boot> <output> <ticks of this run> <ticks since the boot> <CRC-32>\n
 *
 * The line's CRC is that of its text up to the space before it (as zlib's). The answer may also be BAD <reason>\n, and
 * at any time FAULT <status> <address> <where>\n. The boot delay keeps a real board's debug port reachable, whatever
 * the artifact does (-D BOOT_DELAY_TICKS). Nothing here is the artifact's: it has net() alone, behind the guard.
 * The clock is clock.c here, and a vendor's port.c on boards that are built by their tools.
 */
#include "arena.h"
#include "harness.h"

static uint32_t crc;

/* One byte into the CRC-32 of IEEE 802.3, reflected. */
static void check(uint8_t byte) {
    crc ^= byte;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1)));
}

static void put(uint8_t byte) {
    check(byte);
    uart_put(byte);
}

void put_text(const char *text) {
    while (*text) put((uint8_t)*text++);
}

void put_hex(uint64_t value, int digits) {
    while (digits--) put((uint8_t)"0123456789abcdef"[(value >> (4 * digits)) & 15]);
}

static uint8_t get(void) {
    const uint8_t byte = uart_get();
    check(byte);
    return byte;
}

static uint32_t get_word(void) {
    uint32_t word = 0;
    for (int shift = 0; shift < 32; shift += 8) word |= (uint32_t)get() << shift;
    return word;
}

/* Skips whatever is not a header: noise on the line cannot become an input. */
static void wait_for_header(void) {
    static const char magic[] = "ARN:";
    for (int matched = 0; matched < 4;) {
        const char byte = (char)uart_get();
        matched = byte == magic[matched] ? matched + 1 : byte == magic[0];
    }
}

static const char *receive_input(uint32_t *nonce) {
    crc = 0xFFFFFFFFu;
    *nonce = get_word();
    if (get_word() != (uint32_t)(_input_end - _input_start)) return "size";
    for (uint8_t *at = _input_start; at < _input_end; at++) *at = get();
    const uint32_t found = ~crc;
    return get_word() == found ? 0 : "crc";
}

static void answer(uint32_t nonce, uint32_t runs, uint64_t spent, uint64_t stamp) {
    crc = 0xFFFFFFFFu;
    put_text("OUT ");
    put_hex(nonce, 8);
    put_text(" ");
    put_hex(runs, 8);
    put_text(" ");
    for (const uint8_t *at = _output_start; at < _output_end; at++) put_hex(*at, 2);
    put_text(" ");
    put_hex(spent, 16);
    put_text(" ");
    put_hex(stamp, 16);
    const uint32_t found = ~crc;
    put_text(" ");
    put_hex(found, 8);
    put_text("\n");
}

int main(void) {
    uart_init();
    clock_init();
    clock_restart();
    while (clock_ticks() < BOOT_DELAY_TICKS) {
    }
    const uint64_t delayed = clock_ticks();
    guard_init();
    put_text("ARENA 1 ");
    put_hex((uint64_t)(_input_end - _input_start), 8);
    put_text(" ");
    put_hex((uint64_t)(_output_end - _output_start), 8);
    put_text(" ");
    put_hex(delayed, 16);
    put_text("\n");
    for (uint32_t runs = 0;;) {
        uint32_t nonce;
        wait_for_header();
        const char *const wrong = receive_input(&nonce);
        if (wrong) {
            put_text("BAD ");
            put_text(wrong);
            put_text("\n");
            continue;
        }
        for (uint8_t *at = _output_start; at < _output_end; at++) *at = 0;
        clock_restart();
        guard_run(_input_start, _output_start);
        const uint64_t spent = clock_ticks();
        answer(nonce, ++runs, spent, clock_before() + spent);
    }
}
