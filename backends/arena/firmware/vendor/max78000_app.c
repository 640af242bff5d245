/* The seed's own part for the MAX78000's accelerator; cnn.c, cnn.h and weights.h beside it are ai8xize's. */
#include "app.h"
#include "mxc.h" /* before cnn.h, which uses its types and does not include it */

#include "cnn.h"

#define CHANNELS @CHANNELS@
#define PIXELS @PIXELS@

volatile uint32_t cnn_time; /* not 0 once a run has ended: cnn.c sets it, and leaves it to main.c to define */

/* Where the first layer reads: four channels to a word, a word a pixel. */
static volatile uint32_t *const inputs[] = {@ADDRESSES@};

void app_begin(void) {
    MXC_ICC_Enable(MXC_ICC0);
    MXC_SYS_Clock_Select(MXC_SYS_CLOCK_IPO);
    SystemCoreClockUpdate();
    cnn_enable(MXC_S_GCR_PCLKDIV_CNNCLKSEL_PCLK, MXC_S_GCR_PCLKDIV_CNNCLKDIV_DIV1);
    cnn_init();
    cnn_load_weights();
    cnn_load_bias();
    cnn_configure();
}

void net(const void *input, void *output) {
    const uint8_t *const maps = input; /* channels first */
    for (int group = 0; group < (CHANNELS + 3) / 4; group++)
        for (int pixel = 0; pixel < PIXELS; pixel++) {
            uint32_t word = 0;
            for (int byte = 0; byte < 4 && 4 * group + byte < CHANNELS; byte++)
                word |= (uint32_t)maps[(4 * group + byte) * PIXELS + pixel] << (8 * byte);
            inputs[group][pixel] = word;
        }
    cnn_start();
    while (cnn_time == 0) MXC_LP_EnterSleepMode();
    cnn_unload(output);
}
