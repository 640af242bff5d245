/* ESP32-S3, by ESP-IDF 5: USB-Serial/JTAG, an access point of its own, answers and temperatures by UDP.
 *
 * The workload of paper 001, section 3.3: every answer is sent to CLIENTS logical clients (one datagram each), and
 * where SAMPLE_HZ is not 0 so are all temperatures that were sampled since the last one. Read by GCC for another
 * 32-bit core (-fsyntax-only -Wall -Wextra) with the headers of ESP-IDF 6.2; never compiled for the chip, nor run on it.
 */
#include <string.h>

#include "app.h"
#include "arena.h"
#include "driver/temperature_sensor.h"
#include "driver/usb_serial_jtag.h"
#include "esp_event.h"
#include "esp_heap_caps.h"
#include "esp_netif.h"
#include "esp_timer.h"
#include "esp_wifi.h"
#include "freertos/FreeRTOS.h"
#include "freertos/task.h"
#include "harness.h"
#include "lwip/sockets.h"
#include "nvs_flash.h"
#include "port.h"

#define FIRST_UDP_PORT 3333
#define SAMPLE_BYTES (256 * 1024)
#define DATAGRAM_BYTES 1024
#define MOST_TX_POWER 84 /* the largest that esp_wifi.h takes: 20 dBm, in quarters of a dBm */

static int64_t restarted;
static int sender = -1;
static struct sockaddr_in everybody;
static temperature_sensor_handle_t thermometer;
static float *samples;
static volatile uint32_t sampled, sent;

void uart_init(void) {
    usb_serial_jtag_driver_config_t settings = {.tx_buffer_size = 4096, .rx_buffer_size = 4096};
    ESP_ERROR_CHECK(usb_serial_jtag_driver_install(&settings));
}

void arena_console(void) {
}

void uart_put(uint8_t byte) {
    while (usb_serial_jtag_write_bytes(&byte, 1, portMAX_DELAY) != 1) {
    }
}

uint8_t uart_get(void) {
    uint8_t byte;
    while (usb_serial_jtag_read_bytes(&byte, 1, pdMS_TO_TICKS(10)) != 1) app_idle();
    return byte;
}

void clock_init(void) {
}

void clock_restart(void) {
    restarted = esp_timer_get_time();
}

uint64_t clock_ticks(void) {
    return (uint64_t)(esp_timer_get_time() - restarted);
}

uint64_t clock_before(void) {
    return (uint64_t)restarted;
}

static void sample(void *unused) {
    (void)unused;
    if ((sampled - sent) * sizeof *samples < SAMPLE_BYTES)
        temperature_sensor_get_celsius(thermometer, &samples[sampled++ % (SAMPLE_BYTES / sizeof *samples)]);
}

static void begin_sampling(void) {
    temperature_sensor_config_t range = TEMPERATURE_SENSOR_CONFIG_DEFAULT(-10, 80);
    const esp_timer_create_args_t timer = {.callback = sample, .name = "temperature"};
    esp_timer_handle_t handle;
    samples = heap_caps_malloc(SAMPLE_BYTES, MALLOC_CAP_SPIRAM);
    ESP_ERROR_CHECK(samples ? ESP_OK : ESP_ERR_NO_MEM);
    ESP_ERROR_CHECK(temperature_sensor_install(&range, &thermometer));
    ESP_ERROR_CHECK(temperature_sensor_enable(thermometer));
    ESP_ERROR_CHECK(esp_timer_create(&timer, &handle));
    ESP_ERROR_CHECK(esp_timer_start_periodic(handle, 1000000u / (SAMPLE_HZ ? SAMPLE_HZ : 1)));
}

static void begin_radio(void) {
    wifi_init_config_t init = WIFI_INIT_CONFIG_DEFAULT();
    wifi_config_t point = {.ap = {.ssid = "arena", .ssid_len = 5, .channel = 6, .max_connection = 4,
                                  .authmode = WIFI_AUTH_OPEN}};
    const int yes = 1;
    ESP_ERROR_CHECK(nvs_flash_init());
    ESP_ERROR_CHECK(esp_netif_init());
    ESP_ERROR_CHECK(esp_event_loop_create_default());
    esp_netif_create_default_wifi_ap();
    ESP_ERROR_CHECK(esp_wifi_init(&init));
    ESP_ERROR_CHECK(esp_wifi_set_mode(WIFI_MODE_AP));
    ESP_ERROR_CHECK(esp_wifi_set_config(WIFI_IF_AP, &point));
    ESP_ERROR_CHECK(esp_wifi_start());
    ESP_ERROR_CHECK(esp_wifi_set_max_tx_power(MOST_TX_POWER));
    sender = socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP);
    setsockopt(sender, SOL_SOCKET, SO_BROADCAST, &yes, sizeof yes);
    everybody.sin_family = AF_INET;
    everybody.sin_addr.s_addr = inet_addr("192.168.4.255");
}

void port_begin(void) {
    if (CLIENTS) begin_radio();
    if (SAMPLE_HZ) begin_sampling();
}

/* A datagram that finds no buffer free is tried again: none may be left out. */
static void to_all(const void *data, uint32_t length) {
    for (int client = 0; client < CLIENTS; client++) {
        everybody.sin_port = htons(FIRST_UDP_PORT + client);
        while (sendto(sender, data, length, 0, (struct sockaddr *)&everybody, sizeof everybody) < 0) vTaskDelay(1);
    }
}

void port_deliver(const uint8_t *output, uint32_t length) {
    to_all(output, length);
    while (SAMPLE_HZ && sent != sampled) {
        const uint32_t at = sent % (SAMPLE_BYTES / sizeof *samples), most = DATAGRAM_BYTES / sizeof *samples;
        uint32_t count = sampled - sent;
        if (count > most) count = most;
        if (count > SAMPLE_BYTES / sizeof *samples - at) count = SAMPLE_BYTES / sizeof *samples - at;
        to_all(&samples[at], count * sizeof *samples);
        memset(&samples[at], 0, count * sizeof *samples);
        sent += count;
    }
}
