/* A port of the harness for a host program: the serial port is stdin and stdout, the clock the system's. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "app.h"
#include "arena.h"
#include "harness.h"
#include "port.h"

static uint64_t booted, restarted;

static uint64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000u + (uint64_t)at.tv_nsec / 1000u;
}

void uart_init(void) {
#ifdef ROM_LOG
    put_text(ROM_LOG "\n");
#endif
}

void uart_put(uint8_t byte) {
    if (write(1, &byte, 1) != 1) exit(1);
}

uint8_t uart_get(void) {
    uint8_t byte;
    if (read(0, &byte, 1) != 1) exit(0);
    return byte;
}

void arena_console(void) {
}

void clock_init(void) {
    booted = now();
}

void clock_restart(void) {
    restarted = now();
}

uint64_t clock_ticks(void) {
    return now() - restarted + 1;
}

uint64_t clock_before(void) {
    return restarted - booted;
}

void port_begin(void) {
}

void port_deliver(const uint8_t *output, uint32_t length) {
    (void)output, (void)length;
}
