/* Serial harness: the host sends inputs, the firmware answers outputs, SysTick ticks and stack use.
 *
 *   firmware: READY <input bytes> <output bytes>\n
 *   host:     'N' 'E' 'T' ':' <payload bytes, u32> <sum of payload bytes, u32> <payload>   little-endian
 *   firmware: OUT <output, hex> <ticks, hex; 0 where nothing counts them> <stack bytes, hex> <CRC-32, hex>\n
 *
 * The CRC (zlib's) is that of the payload as it arrived, then of the output's bytes, of the ticks (u64) and of the stack
 * bytes (u32): an answer that was damaged on its way is noticed, and so is one to an input that was.
 *
 * Compiled with -DSTREAM it also takes samples, 'R' 'A' 'W' ':' in place of 'N' 'E' 'T' ':'; ticks are then those of the
 * front end alone.
 *
 * The answer to a frame may also be BAD <reason>\n, and at any time FAULT [<reason>]\n.
 * The lowest GUARD_BYTES (-D) of the stack are never needed: a frame that reaches past its reserve may skip some words
 * there, hardly all. It serves until it is switched off, so the host never loses the tail of an answer. Nothing here depends on the
 * network: the linker script reserves input, output and stack, so this object is compiled once.
 */
#include "harness.h"

#define SYSTICK_CONTROL (*(volatile uint32_t *)0xE000E010u)
#define SYSTICK_RELOAD (*(volatile uint32_t *)0xE000E014u)
#define SYSTICK_VALUE (*(volatile uint32_t *)0xE000E018u)
#define SYSTICK_MASK 0xFFFFFFu /* a 24-bit counter, counting down */
#define SYSTICK_TRIES 10000 /* reads of a counter at 0: far more than one tick takes, even at 62 instructions a tick */
#define PAINT 0xDEADBEEFu

extern uint8_t _input_start[], _input_end[], _output_start[], _output_end[];
extern uint32_t _stack_start[], _stack_end[];

void net(const void *input, void *output); /* generated; array parameters are pointers to the ABI */

#ifdef STREAM
void stream_reset(void);
void stream_feed(const int16_t *samples, uint32_t count);
int stream_result(int8_t *scores);
extern const uint32_t stream_channels, stream_block; /* values of a sample, and samples that are fed at once */
#define BLOCK_VALUES 32 /* at most */
#define MOST_BYTES (1u << 20) /* of one payload */
#endif

static volatile uint32_t wraps;

void systick_wrap(void) {
    wraps++;
}

/* Restarting the counter makes every run begin at the same phase, so that counts repeat exactly. */
static void restart_ticks(void) {
    wraps = 0;
    SYSTICK_VALUE = 0; /* any write clears it; it reloads one tick later */
}

/* Ticks since the restart, at least 1; 0 where SysTick does not count: ARMv6-M may leave it out, and a real nRF51 does.
   The interrupt comes when the counter reaches 0, so 0 opens a period. */
uint64_t ticks(void) {
    uint32_t seen, value, tries = SYSTICK_TRIES;
    do {
        seen = wraps;
        value = SYSTICK_VALUE;
        if (value == 0 && --tries == 0) return 0;
    } while (seen != wraps || value == 0);
    return ((uint64_t)seen << 24) + ((0u - value) & SYSTICK_MASK);
}

/* Not inlined, as they are called from many places: Flash. */
#define ONCE __attribute__((noinline)) static

ONCE void put_text(const char *text) {
    while (*text) uart_put((uint8_t)*text++);
}

ONCE void put_hex(uint64_t value, int digits) {
    while (digits--) uart_put((uint8_t)"0123456789abcdef"[(value >> (4 * digits)) & 15]);
}

ONCE uint32_t get_word(void) {
    uint32_t word = 0;
    for (int shift = 0; shift < 32; shift += 8) word |= (uint32_t)uart_get() << shift;
    return word;
}

/* The CRC-32 of IEEE 802.3, reflected, over some more bytes; it begins with all ones, and ends inverted. */
ONCE uint32_t crc_over(uint32_t crc, const void *from, uint32_t count) {
    for (const uint8_t *at = from; count--; at++) {
        crc ^= *at;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1)));
    }
    return crc;
}

#define NET 0x4E45543Au /* "NET:" */
#define RAW 0x5241573Au /* "RAW:" */

/* Skips whatever is not a header: noise on the line cannot become an input. */
static uint32_t wait_for_header(void) {
    uint32_t last = 0;
    do last = last << 8 | uart_get();
#ifdef STREAM
    while (last != NET && last != RAW);
#else
    while (last != NET);
#endif
    return last;
}

static const char *receive_input(void) {
    const uint32_t size = get_word(), sum = get_word();
    if (size != (uint32_t)(_input_end - _input_start)) return "size";
    uint32_t found = 0;
    for (uint8_t *at = _input_start; at < _input_end; at++) {
        *at = uart_get();
        found += *at;
    }
    return found == sum ? 0 : "sum";
}

#ifdef STREAM
/* Feeds samples as they come in; `spent` becomes the ticks that the front end took, `crc` goes on over the payload. */
static const char *receive_samples(uint64_t *spent, uint32_t *crc) {
    const uint32_t size = get_word(), sum = get_word();
    if (size > MOST_BYTES) return "size";
    int16_t block[BLOCK_VALUES];
    uint32_t found = 0, filled = 0, lane = 0, samples = 0;
    for (uint32_t left = size; left > 1; left -= 2) {
        const uint32_t low = uart_get(), high = uart_get();
        found += low + high;
        block[filled++] = (int16_t)(low | high << 8);
        if (++lane < stream_channels) continue;
        lane = 0;
        if (++samples < stream_block && left > 3) continue;
        *crc = crc_over(*crc, block, filled * sizeof *block);
        restart_ticks();
        stream_feed(block, samples);
        *spent += ticks();
        filled = samples = 0;
    }
    if (lane || size % 2) return "size";
    if (found != sum) return "sum";
    return stream_result((int8_t *)_output_start) ? 0 : "window";
}
#endif

/* Paints what lies below the stack pointer: nobody's, except an interrupt's while it runs. */
static void paint_stack(void) {
    uint32_t *here;
    __asm__ volatile("mov %0, sp" : "=r"(here));
    for (volatile uint32_t *at = _stack_start; at < here; at++) *at = PAINT;
}

static uint32_t stack_used(void) {
    const uint32_t *at = _stack_start;
    while (at < _stack_end && *at == PAINT) at++;
    return (uint32_t)((const uint8_t *)_stack_end - (const uint8_t *)at);
}

/* `crc` is that of the payload. */
ONCE void send_answer(uint32_t crc, uint64_t spent, uint32_t stack) {
    crc = crc_over(crc, _output_start, (uint32_t)(_output_end - _output_start));
    crc = crc_over(crc_over(crc, &spent, sizeof spent), &stack, sizeof stack); /* little-endian, as these cores are */
    put_text("OUT ");
    for (const uint8_t *at = _output_start; at < _output_end; at++) put_hex(*at, 2);
    put_text(" ");
    put_hex(spent, 16);
    put_text(" ");
    put_hex(stack, 8);
    put_text(" ");
    put_hex(~crc, 8);
    put_text("\n");
}

int main(void) {
    uart_init();
#ifdef STREAM
    stream_reset();
#endif
    SYSTICK_RELOAD = SYSTICK_MASK;
    SYSTICK_VALUE = 0;
    SYSTICK_CONTROL = 7; /* processor clock, interrupt, enable */
    put_text("READY ");
    put_hex((uint64_t)(_input_end - _input_start), 8);
    put_text(" ");
    put_hex((uint64_t)(_output_end - _output_start), 8);
    put_text("\n");
    for (;;) {
        uint64_t spent = 0;
        uint32_t crc = 0xFFFFFFFFu;
        const char *wrong;
#ifdef STREAM
        const int samples = wait_for_header() == RAW;
        if (samples) paint_stack();
        wrong = samples ? receive_samples(&spent, &crc) : receive_input();
#else
        wait_for_header();
        wrong = receive_input();
#endif
        if (wrong) {
            put_text("BAD ");
            put_text(wrong);
            put_text("\n");
            continue;
        }
#ifdef STREAM
        if (!samples)
#endif
        {
            crc = crc_over(crc, _input_start, (uint32_t)(_input_end - _input_start)); /* net() may reuse its input */
            paint_stack();
            restart_ticks();
            net(_input_start, _output_start);
            spent = ticks();
        }
        const uint32_t stack = stack_used();
        if (stack > (uint32_t)((uint8_t *)_stack_end - (uint8_t *)_stack_start) - GUARD_BYTES) {
            put_text("FAULT stack\n"); /* it may have grown past its reserve, over the output */
            continue;
        }
        send_answer(crc, spent, stack);
    }
}

void fault(void) {
    put_text("FAULT\n");
    for (;;) {
    }
}
