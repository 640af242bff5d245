/* The harness' clock where it is built by us: SysTick, whose wraps are counted by its interrupt. */
#include "arena.h"
#include "harness.h"

#define SYSTICK_CONTROL (*(volatile uint32_t *)0xE000E010u)
#define SYSTICK_RELOAD (*(volatile uint32_t *)0xE000E014u)
#define SYSTICK_VALUE (*(volatile uint32_t *)0xE000E018u)
#define SYSTICK_MASK 0xFFFFFFu /* a 24-bit counter, counting down */

static volatile uint32_t wraps;
static uint64_t before_restart; /* ticks from the boot to the last restart */

void systick_wrap(void) {
    wraps++;
}

void clock_init(void) {
    SYSTICK_RELOAD = SYSTICK_MASK;
    SYSTICK_VALUE = 0;
    SYSTICK_CONTROL = 7; /* processor clock, interrupt, enable */
}

void clock_restart(void) {
    before_restart += clock_ticks();
    wraps = 0;
    SYSTICK_VALUE = 0; /* any write clears it; it reloads one tick later */
}

/* The interrupt comes when the counter reaches 0, so 0 opens a period. */
uint64_t clock_ticks(void) {
    uint32_t seen, value;
    do {
        seen = wraps;
        value = SYSTICK_VALUE;
    } while (seen != wraps || value == 0);
    return ((uint64_t)seen << 24) + ((0u - value) & SYSTICK_MASK);
}

uint64_t clock_before(void) {
    return before_restart;
}
