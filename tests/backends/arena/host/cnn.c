/* A stand-in for the MAX78000's accelerator: its data memory is mapped where the chip has it, a test computes. */
#include "cnn.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "weights.h"

static int32_t answer[OUTPUTS];

__attribute__((constructor)) static void map_data_memory(void) {
    if (mmap((void *)DATA, 0x10000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        exit(2);
}

int cnn_start(void) {
    const struct sockaddr_in tester = {
        .sin_family = AF_INET, .sin_port = htons(TESTER), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int line = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(line, (const struct sockaddr *)&tester, sizeof tester)) exit(3);
    if (write(line, (const void *)DATA, 4 * WORDS) != 4 * WORDS) exit(4);
    for (size_t got = 0; got < sizeof answer;) {
        const ssize_t more = read(line, (char *)answer + got, sizeof answer - got);
        if (more <= 0) exit(5);
        got += (size_t)more;
    }
    close(line);
    cnn_time = 1;
    return 0;
}

int cnn_unload(uint32_t *out) {
    for (int at = 0; at < OUTPUTS; at++) out[at] = (uint32_t)answer[at];
    return 0;
}
