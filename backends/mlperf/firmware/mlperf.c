/* MLPerf Tiny's serial protocol, for mlcommons/tiny's own runner (benchmark/runner) and its power monitors.
 *
 * A command ends in '%' and has at most 80 characters; every answer ends in "m-ready\r\n". It is written from the
 * protocol as benchmark/api/internally_implemented.cpp defines it, and shares no code with that file.
 *
 *   name% profile% timestamp% help% results%      db load N%  db HH..%  db print%      infer N [WARMUPS=10]%
 *
 * The buffer is a picture row by row, channels beside each other, a byte a value (uint8, as the data sets of ic01 and
 * vww01 are). Performance and accuracy mode print a time stamp, energy mode (-D ENERGY=1) lets a pin fall for a power
 * monitor, and prints none. -D MODEL names the benchmark, TICKS_HZ is SysTick's clock.
 */
#include <math.h>
#include <string.h>

#include "harness.h"
#include "net.h"

#define SYSTICK_CONTROL (*(volatile uint32_t *)0xE000E010u)
#define SYSTICK_RELOAD (*(volatile uint32_t *)0xE000E014u)
#define SYSTICK_VALUE (*(volatile uint32_t *)0xE000E018u)
#define SYSTICK_MASK 0xFFFFFFu
#define COMMAND_CHARS 80
#define PIXELS (NET_INPUT_HEIGHT * NET_INPUT_WIDTH)
#define VALUES (NET_INPUT_CHANNELS * PIXELS)
#define MICROS 1000000u
#define PULSE_US 2u /* the pin is low for at least 1 us */

extern uint8_t _input_start[], _output_start[];

static net_value loaded[VALUES]; /* net() may use its own input as working memory, so that it gets a copy each time */
static uint32_t expected, received;
static volatile uint32_t wraps;
static char *rest; /* of the command that is being read */

void systick_wrap(void) {
    wraps++;
}

static uint64_t microseconds(void) {
    uint32_t seen, value;
    do {
        seen = wraps;
        value = SYSTICK_VALUE;
    } while (seen != wraps || value == 0);
    return (((uint64_t)seen << 24) + ((0u - value) & SYSTICK_MASK)) * MICROS / TICKS_HZ;
}

static void text(const char *words) {
    while (*words) uart_put((uint8_t)*words++);
}

static void number(uint64_t value, int digits) {
    char said[21];
    int at = 20;
    said[at] = 0;
    do {
        said[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value || 20 - at < digits);
    text(said + at);
}

static void say(const char *before, uint64_t value, const char *after) {
    text(before);
    number(value, 1);
    text(after);
}

static void timestamp(void) {
#if ENERGY
    PIN_LOW_ADDRESS = PIN_LOW_VALUE; /* the falling edge is the time stamp */
    const uint64_t start = microseconds();
    while (microseconds() < start + PULSE_US) {
    }
    PIN_HIGH_ADDRESS = PIN_HIGH_VALUE;
#else
    say("m-lap-us-", microseconds(), "\r\n");
#endif
}

static char *word(void) {
    while (*rest == ' ') rest++;
    char *const start = rest;
    while (*rest && *rest != ' ') rest++;
    if (*rest) *rest++ = 0;
    return start;
}

/* A decimal number; -1 where there is none, or one beyond 9 digits. */
static int32_t whole(const char *digits) {
    int32_t value = 0, count = 0;
    for (; digits[count]; count++) {
        if (digits[count] < '0' || digits[count] > '9' || count == 9) return -1;
        value = 10 * value + (digits[count] - '0');
    }
    return count ? value : -1;
}

static int hex(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

static uint32_t place_of(uint32_t byte) {
    return byte % NET_INPUT_CHANNELS * PIXELS + byte / NET_INPUT_CHANNELS;
}

static int pixel_at(uint32_t byte) {
#ifdef NET_OUTPUT_SCALE
    return loaded[place_of(byte)] + 128;
#else
    return (int)(loaded[place_of(byte)] * 128.0f) + 128;
#endif
}

static void load_bytes(const char *digits) {
    if (received == expected) text("e-[No bytes are expected]\r\n");
    for (; *digits && received < expected; digits += 2) {
        const int high = hex(digits[0]), low = high < 0 ? -1 : hex(digits[1]);
        if (low < 0) {
            text("e-[Invalid hex digits]\r\n");
            return;
        }
        loaded[place_of(received++)] = NET_ENCODE(16 * high + low);
        if (received == expected) text("m-load-done\r\n");
    }
}

static void print_buffer(void) {
    for (uint32_t at = 0; at < received; at++) {
        const int value = pixel_at(at);
        text(at % 8 ? "-" : "m-buffer-");
        uart_put((uint8_t)"0123456789abcdef"[value >> 4 & 15]);
        uart_put((uint8_t)"0123456789abcdef"[value & 15]);
        if (at % 8 == 7 || at + 1 == received) text("\r\n");
    }
}

static void database(void) {
    const char *const what = word();
    if (!*what) {
        text("e-[Command 'db' requires a subcommand]\r\n");
    } else if (!strcmp(what, "load")) {
        const int32_t bytes = whole(word());
        expected = received = 0;
        if (bytes != VALUES) {
            say("e-[A picture has ", VALUES, " bytes]\r\n");
            return;
        }
        expected = VALUES;
        say("m-[Expecting ", VALUES, " bytes]\r\n");
    } else if (!strcmp(what, "print")) {
        print_buffer();
    } else {
        load_bytes(what);
    }
}

/* Probabilities, which the runner expects; six digits, so that close ones keep their order. */
static void results(void) {
    const net_value *const scores = (const net_value *)_output_start;
#ifdef NET_OUTPUT_SCALE
    const float scale = NET_OUTPUT_SCALE;
#else
    const float scale = 1.0f;
#endif
    net_value best = scores[0];
    float sum = 0.0f;
    for (int i = 1; i < NET_CLASSES; i++)
        if (scores[i] > best) best = scores[i];
    for (int i = 0; i < NET_CLASSES; i++) sum += expf((float)(scores[i] - best) * scale);
    text("m-results-[");
    for (int i = 0; i < NET_CLASSES; i++) {
        const uint32_t millionths = (uint32_t)(1e6f * expf((float)(scores[i] - best) * scale) / sum + 0.5f);
        say(i ? "," : "", millionths / MICROS, ".");
        number(millionths % MICROS, 6);
    }
    text("]\r\n");
}

static void run_once(void) {
    memcpy(_input_start, loaded, sizeof loaded);
    net_run((const net_value *)_input_start, (net_value *)_output_start);
}

static void infer(void) {
    const char *words = word();
    int32_t runs = *words ? whole(words) : 1, warmups;
    words = word();
    warmups = *words ? whole(words) : 10;
    if (runs <= 0 || warmups < 0) {
        text("e-[Inference iterations must be >0, warmups >=0]\r\n");
        return;
    }
    say("m-warmup-start-", (uint32_t)warmups, "\r\n");
    while (warmups-- > 0) run_once();
    text("m-warmup-done\r\n");
    say("m-infer-start-", (uint32_t)runs, "\r\n");
    timestamp();
    while (runs-- > 0) run_once();
    timestamp();
    text("m-infer-done\r\n");
    results();
}

static void obey(char *command) {
    rest = command;
    const char *const what = word();
    if (!strcmp(what, "name")) {
        text("m-name-dut-[automcu]\r\n");
    } else if (!strcmp(what, "profile")) {
        text("m-profile-[ULPMark for tinyML Firmware V0.0.1]\r\nm-model-[" MODEL "]\r\n");
    } else if (!strcmp(what, "timestamp")) {
        timestamp();
    } else if (!strcmp(what, "help")) {
        text("name profile timestamp results\r\ndb load N, db HH.., db print\r\ninfer N [W=10]\r\n");
    } else if (!strcmp(what, "db")) {
        database();
    } else if (!strcmp(what, "infer")) {
        infer();
    } else if (!strcmp(what, "results")) {
        results();
    } else {
        text("e-[Unknown command: ");
        text(what);
        text("]\r\n");
    }
    text("m-ready\r\n");
}

int main(void) {
    static char command[COMMAND_CHARS + 1];
    uint32_t length = 0;
    uart_init(); /* and in energy mode the pin, high */
    SYSTICK_RELOAD = SYSTICK_MASK;
    SYSTICK_VALUE = 0;
    SYSTICK_CONTROL = 7; /* processor clock, interrupt, enable */
    net_init();
    text(ENERGY ? "m-timestamp-mode-energy\r\n" : "m-timestamp-mode-performance\r\n");
    timestamp();
    text("m-init-done\r\nm-ready\r\n");
    for (;;) {
        const char received_char = (char)uart_get();
        if (received_char == '%') {
            command[length] = 0;
            length = 0;
            obey(command);
        } else if (received_char != '\r' && received_char != '\n' && length < COMMAND_CHARS) {
            command[length++] = received_char;
        }
    }
}

void fault(void) {
    text("e-[fault]\r\n");
    for (;;) {
    }
}
