"""What may be under way follows what came back."""

from nightmill.dispatcher.rate import AnswerRate


def test_three_seconds_of_the_rate_that_was_seen() -> None:
    """E2, E4: 900 answers in a second allow 2,700; ten seconds of silence bring the configured limit back."""
    rate = AnswerRate()
    rate.turn(10_000)
    for _ in range(900):
        rate.answered("p")
    rate.turn(11_000)
    assert rate.most_outstanding("p", 400) == 2_700
    assert rate.most_outstanding("other", 400) == 400
    for window in range(23, 42):
        rate.turn(window * 500)
    assert rate.most_outstanding("p", 400) == 2_700
    rate.turn(21_000)
    assert rate.most_outstanding("p", 400) == 400


def test_a_long_pause_counts_as_a_slow_second() -> None:
    """1,000 answers in ten seconds are 100 a second."""
    rate = AnswerRate()
    rate.turn(10_000)
    for _ in range(1_000):
        rate.answered("p")
    rate.turn(20_000)
    assert rate.most_outstanding("p", 16) == 300


def test_there_is_an_upper_bound() -> None:
    rate = AnswerRate()
    rate.turn(10_000)
    for _ in range(50_000):
        rate.answered("p")
    rate.turn(11_000)
    assert rate.most_outstanding("p", 16) == 20_000
