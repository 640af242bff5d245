"""How people call tasks, boards and amounts, in English and in what else users wrote: data for `sentence`."""

TASKS = {
    "spoken_digits": ("spoken digits", "spoken digit", "digits spoken", "gesprochene ziffern"),
    "digits": (
        "handwritten digits", "handwritten digit", "handwritten numbers", "digits", "digit recognition",
        "handgeschriebene ziffern", "ziffern", "chiffres manuscrits", "dígitos manuscritos", "digitos manuscritos",
    ),
    "mnist": ("mnist",),
    "fashion_mnist": ("fashion mnist", "fashion", "clothes", "clothing", "garments"),
    "cifar100": ("cifar 100", "cifar100"),
    "cifar10": ("cifar 10", "cifar10", "cifar"),
    "imagenette": ("imagenette",),
    "speech_commands": (
        "keyword spotting", "speech commands", "voice commands", "spoken commands", "wake word", "keywords",
        "sprachbefehle", "commandes vocales",
    ),
    "motion": (
        "activity recognition", "human activity", "activities", "motion", "accelerometer", "gestures", "bewegungen",
        "aktivitäten",
    ),
    "images": ("my photos", "my pictures", "my images", "photographs", "photos", "pictures", "own images", "bilder"),
}  # fmt: skip
BOARDS = {
    "rp2350": ("pico 2", "raspberry pi pico 2"),
    "rp2040": ("raspberry pi pico", "pi pico", "pico"),
    "nrf51822": ("micro bit", "microbit"),
    "feather_nrf52840": ("feather nrf52840", "adafruit feather", "nrf52840 feather"),
    "nrf52840": ("nano 33 ble", "nrf52840 dk", "nicla sense"),
    "stm32f103": ("blue pill", "bluepill"),
    "stm32f401": ("black pill f401",),
    "stm32f411": ("black pill", "blackpill"),
    "stm32f407": ("discovery f407",),
    "stm32h747": ("portenta h7", "giga r1"),
    "max78000": ("max78000fthr",),
}
RAM = ("ram", "sram", "memory", "arbeitsspeicher", "mémoire", "memoria")
FLASH = ("flash", "rom", "storage", "program memory", "programmspeicher")
AT_MOST = (
    "at most", "less than", "no more than", "not more than", "under", "below", "within", "up to", "max", "maximum",
    "at maximum", "höchstens", "unter", "moins de", "menos de", "au plus", "<=", "<", "≤", "fits in",
)  # fmt: skip
AT_LEAST = (
    "at least", "more than", "no less than", "not less than", "over", "above", "min", "minimum", "mindestens", "über",
    "plus de", "más de", "au moins", "al menos", ">=", ">", "≥", "better than",
)  # fmt: skip
INFERENCE = ("latency", "inference", "per image", "per picture", "per frame", "prediction", "latenz", "answer")
OBJECTIVES = {
    "instructions": ("fastest", "as fast as possible", "lowest latency", "fewest instructions", "quickest"),
    "flash": ("smallest", "as small as possible", "smallest flash"),
    "ram": ("smallest ram", "as little ram as possible", "as little memory as possible"),
}
PRECISIONS = {"int8": ("int8", "8 bit", "8-bit", "quantized", "quantised"), "float32": ("float32", "32 bit float")}
PASSED_OVER = frozenset(
    """a an the i we want need would like to for on in with within of and or at is it me my please that which should
    must can be find search classify classification recognise recognize recognition detect train build make network
    neural model from by than as runs run using use into fits fit be has have under budget accuracy accurate correct
    right time per max min limit limited available only kb mb images image board microcontroller mcu chip auf mit für
    und ein eine einem einer der die das mindestens höchstens genauigkeit de un une avec sur et précision con en y
    error instructions million percent""".split()
)
