/* What the seed asks of the MSDK, where there is none. */
#define MXC_ICC_Enable(cache) (void)0
#define MXC_SYS_Clock_Select(clock) (void)0
#define SystemCoreClockUpdate() (void)0
#define MXC_LP_EnterSleepMode() (void)0
