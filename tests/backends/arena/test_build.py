"""What an agent is told of a build that failed."""

from backends.arena.build import DIAGNOSIS_CHARS, diagnosis


def test_the_first_error_is_told_however_much_a_vendors_own_code_warns_before_it() -> None:
    one = (
        "sdk.c: In function 'LED_On':\nsdk.c:44:19: warning: implicit declaration\n   44 | #define CNN_START LED_On(1)"
    )
    noise = f"{one}\n" * 60
    linked = "net.c:35: undefined reference to `cnn_time'\ncollect2: error: ld returned 1 exit status\n"
    assert len(noise) > 2 * DIAGNOSIS_CHARS
    assert diagnosis(noise + linked).splitlines()[1:] == linked.splitlines()
    compiled = "net.c: In function 'net':\nnet.c:3:5: error: expected ';' before '}' token\n"
    assert diagnosis(noise + compiled) == compiled.strip()
    assert diagnosis("killed\n") == "killed" and diagnosis("") == "the compiler failed, and said nothing"
