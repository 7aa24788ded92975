"""The score of purchases, worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.envs.test_webshop_env import product
from turncredit.envs.webshop.reward import Goal, Score, first_color, kind_factor, score, title_nouns, token_set_ratio

WANTED = product(
    1, "Nordal Velvet Sofa Cover", attributes=("machine wash", "non slip"), query="sofa covers",
    path="Home › Living › Covers", bullets=("Easy fit",), prices=(25.0,),
    options={"color": ("navy blue", "grey"), "size": ("two seats", "three seats")},
)  # fmt: skip
GOAL = Goal(
    WANTED.asin, "", ("machine wash", "easy fit", "non slip"), (("color", "navy blue"), ("size", "two seats")), 30.0
)


def bought(other=WANTED, *selected: str, goal: Goal = GOAL, original_colors: bool = False) -> Score:
    return score(other, selected, goal, WANTED, original_colors=original_colors)


def test_the_goal_s_own_product_with_its_options_scores_one():
    assert bought(WANTED, "navy blue", "two seats") == Score(1.0, 3, 2, 1, 1.0)


def test_each_condition_counts_one_sixth_here():
    assert bought(WANTED, "navy blue").total == pytest.approx(5 / 6)
    assert bought(WANTED).total == pytest.approx(4 / 6)
    assert bought(WANTED, goal=GOAL._replace(limit=20.0)).total == pytest.approx(3 / 6)


def test_a_price_at_the_limit_is_right():
    assert bought(goal=GOAL._replace(limit=25.0)).price == 1
    assert bought(goal=GOAL._replace(limit=24.99)).price == 0


def test_an_attribute_counts_by_the_list_of_attributes_or_by_what_the_texts_say():
    named = product(
        2, "Sofa Cover", attributes=("machine washed",), bullets=("Easy",), description="Fit for all; non slip."
    )
    # "machine washed" is alike; "easy fit" is not within one text; "non slip" is in the description
    assert bought(named).attributes == 2


def test_any_selected_option_can_satisfy_any_of_the_goal_s():
    assert bought(WANTED, "two seats", "grey").options == 1
    assert bought(WANTED, "two seats", "two seats").options == 1
    # the option's name counts as words of the goal's option, as in the original
    assert bought(WANTED, "size").options == 1


def test_colours_are_reduced_to_their_first_word_on_both_sides():
    assert first_color("navy blue") == "blue"
    assert first_color("standard") == "tan"
    assert first_color("two seats") == "two seats"
    assert bought(WANTED, "royal blue").options == 1


def test_as_in_the_original_some_goals_are_out_of_reach_with_its_comparison_of_colours():
    goal = GOAL._replace(options=(("color", "graywash"),))
    assert bought(WANTED, "graywash", goal=goal).options == 1
    assert bought(WANTED, "graywash", goal=goal, original_colors=True).options == 0
    assert bought(WANTED, "navy blue", goal=GOAL, original_colors=True).options == 1  # "blue" is a word of the goal's


def test_as_in_the_original_the_colours_of_people_s_options_are_reduced_on_both_sides():
    goal = GOAL._replace(options=(("", "graywash"),))
    assert bought(WANTED, "graywash", goal=goal, original_colors=True).options == 1


def test_options_without_a_name_are_compared_alone():
    goal = GOAL._replace(options=(("", "two seats"),))
    assert bought(WANTED, "two seats", goal=goal).options == 1
    assert bought(WANTED, "size", goal=goal).options == 0


@pytest.mark.parametrize(
    ("title", "query", "path", "factor"),
    [
        ("Glass Vase", "sofa covers", "Home › Living › Covers", 0.0),  # no noun in common, whatever the category
        ("Oslo Bed Cover", "beds", "Home › Sleep", 1.0),  # one of four nouns: 0.25 > 0.2
        ("Nordal Velvet Sofa Cover", "x", "y", 1.0),
    ],
)
def test_the_kind_of_product_is_a_factor(title, query, path, factor):
    assert kind_factor(product(3, title, query=query, path=path), WANTED) == factor


def test_few_common_nouns_make_half_or_a_tenth_unless_the_query_or_two_categories_agree():
    letters = [f"{first}{second}word" for first in "abcd" for second in "abcde"]
    wanted = product(4, " ".join(letters[:10]), query="one", path="A › B › C")
    longer = product(5, " ".join(letters), query="one", path="A › B › C")
    other = product(6, letters[0], query="two", path="A › D")
    assert kind_factor(other, wanted) == 0.5  # 1 of 10
    assert kind_factor(product(7, letters[0], query="one", path="Z"), wanted) == 1.0
    assert kind_factor(product(8, letters[0], query="two", path="C › A"), wanted) == 1.0
    assert kind_factor(other, longer) == 0.1  # 1 of 20


def test_a_goal_without_nouns_is_judged_by_query_and_category():
    wanted = product(9, "4 x 6", query="one", path="A")
    assert kind_factor(product(10, "Vase", query="one", path="Z"), wanted) == 1.0
    assert kind_factor(product(11, "Vase", query="two", path="Z"), wanted) == 0.5


def test_nouns_are_words_that_are_no_numbers_and_not_in_a_list_cut_as_the_tagger_cuts_them():
    title = "Nordal's Large 12oz Water-Bottle with Lid (2 Pack), Blue, for the PS4"
    assert title_nouns(title) == ("nordal", "oz", "water", "bottle", "lid", "pack", "blue", "ps4")


@pytest.mark.parametrize(
    ("one", "other", "ratio"),  # worked out by hand; thefuzz 0.19 with difflib gives the same
    [
        ("machine wash", "wash, machine!", 100),
        ("blue", "('color', 'blue')", 100),  # all words of one are in the other
        ("easy clean", "easy to clean", 100),
        ("red", "blue", 29),  # one letter in common of seven: 2/7
        ("", "blue", 0),
        ("***", "blue", 0),
        ("ä", "blue", 0),
        ("12″x3″", "x3 12", 100),  # a sign beyond Latin-1 separates words
        ("machine washed", "machine wash", 92),  # 24 of 26 letters
    ],
)
def test_texts_are_compared_as_sets_of_words(one, other, ratio):
    assert token_set_ratio(one, other) == ratio


words = st.lists(st.sampled_from(["red", "oak", "pack", "two", "seat"]), min_size=1, max_size=4).map(" ".join)


@given(words, words)
def test_similarity_is_100_for_contained_words_and_at_most_100(one, other):
    assert 0 <= token_set_ratio(one, other) <= 100
    assert token_set_ratio(one, f"{other} {one}") == 100


@given(st.lists(st.sampled_from(["navy blue", "grey", "two seats", "three seats"]), max_size=3))
def test_scores_are_between_zero_and_one(selected):
    assert 0.0 <= bought(WANTED, *selected).total <= 1.0
