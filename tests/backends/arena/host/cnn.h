#ifndef CNN_H
#define CNN_H
#include <stdint.h>
extern volatile uint32_t cnn_time;
int cnn_start(void);
int cnn_unload(uint32_t *out);
#define cnn_enable(source, divider) (void)0
#define cnn_init() (void)0
#define cnn_load_weights() (void)0
#define cnn_load_bias() (void)0
#define cnn_configure() (void)0
#endif
