/* Vector table and reset: FPU on, .data copied, .bss cleared, main. For every Cortex-M this project targets. */
#include "harness.h"

extern uint32_t _data_load[], _data_start[], _data_end[], _bss_start[], _bss_end[], _stack_end[];

#if defined(__ARM_FP)
#define CPACR (*(volatile uint32_t *)0xE000ED88u)
#endif

void reset(void);

void reset(void) {
#if defined(__ARM_FP)
    CPACR |= 0xFu << 20; /* coprocessors 10 and 11: the FPU, before any code that may use it */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
#endif
    const uint32_t *from = _data_load;
    for (volatile uint32_t *to = _data_start; to < _data_end;) *to++ = *from++;
    for (volatile uint32_t *to = _bss_start; to < _bss_end;) *to++ = 0;
    main();
    for (;;) {
    }
}

typedef void (*handler)(void);

struct vectors {
    uint32_t *stack;
    handler exceptions[15];
};

__attribute__((section(".vectors"), used)) static const struct vectors vectors = {
    _stack_end,
    {
        reset, fault, fault, fault, fault, fault, /* reset, NMI, hard, memory, bus, usage fault */
        fault, 0, 0, 0, fault, fault, 0, fault,   /* secure fault, reserved, SVC, debug, reserved, PendSV */
        systick_wrap,
    },
};
