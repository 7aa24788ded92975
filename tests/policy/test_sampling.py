"""Sampling engines.

1. What an engine says of a token's probability is what the trained model says.
2. A sample depends on its own random numbers, not on what is sampled beside it.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turncredit.errors import UserError
from turncredit.policy import models, tokenizer
from turncredit.policy.engines import guesses, sampler
from turncredit.policy.engines import lockstep as engine_module
from turncredit.policy.engines.guesses import Guesses
from turncredit.policy.engines.lockstep import Lockstep
from turncredit.policy.engines.transformers import Generate
from turncredit.policy.sampling import Request, draw

TEXTS = [
    "<|task|> put a mug in shelf.<|act|>",
    "<|task|> look<|obs|> You see a mug 1, a bed 2.<|act|>",
    "<|act|>",
]


@pytest.fixture(scope="module")
def encoder(world):
    return tokenizer.load(world.path("sft_policy"))


def lockstep(world, encoder, slots=4):
    return Lockstep(str(world.path("sft_policy")), slots=slots, dtype="float32", eos_id=encoder.eos_id)


def conversation(engine, encoder, texts, turns=3, max_new=6, temperature=1.0, order=None):
    """Play `turns` turns on each text in the slots given by `order`; the tokens read and sampled, and log-probs."""
    order = order or list(range(len(texts)))
    rngs = [np.random.default_rng(i) for i in range(len(texts))]
    contexts = [[] for _ in texts]
    logprobs = [[] for _ in texts]
    for turn in range(turns):
        requests = []
        for i, text in enumerate(texts):
            ids = encoder.encode(text if turn == 0 else "<|obs|> Nothing happens.<|act|>")
            requests.append(Request(order[i], ids, turn == 0, rngs[i].random(max_new)))
        rows = sorted(range(len(texts)), key=lambda i: order[i])
        responses = engine.sample([requests[i] for i in rows], temperature, max_new)
        for i, response in zip(rows, responses, strict=True):
            contexts[i] += requests[i].ids + response.ids
            logprobs[i] += [0.0] * len(requests[i].ids) + response.logprobs
    return contexts, logprobs


def test_recorded_logprobs_are_those_of_the_trained_model(world, encoder):
    contexts, logprobs = conversation(lockstep(world, encoder), encoder, TEXTS)
    model = models.load_model(world.path("sft_policy"), dtype="float32").eval()
    for ids, recorded in zip(contexts, logprobs, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        expected = logits.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].numpy()
        sampled = np.array(recorded[1:]) != 0
        assert sampled.sum() >= 6
        np.testing.assert_allclose(np.array(recorded[1:])[sampled], expected[sampled], atol=1e-4)


def test_samples_do_not_depend_on_slots_or_neighbours(world, encoder):
    together, _ = conversation(lockstep(world, encoder, slots=3), encoder, TEXTS)
    spread, _ = conversation(lockstep(world, encoder, slots=7), encoder, TEXTS, order=[6, 0, 3])
    alone = [conversation(lockstep(world, encoder, slots=1), encoder, [TEXTS[0]])[0][0]]
    assert together == spread
    assert together[0] == alone[0]


def test_the_transformers_engine_samples_the_same_tokens(world, encoder):
    other = Generate(str(world.path("sft_policy")), slots=4, dtype="float32", eos_id=encoder.eos_id)
    expected, expected_logprobs = conversation(lockstep(world, encoder), encoder, TEXTS)
    found, logprobs = conversation(other, encoder, TEXTS)
    assert found == expected
    for one, two in zip(logprobs, expected_logprobs, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)


def test_a_reset_forgets_the_context(world, encoder):
    engine = lockstep(world, encoder)
    conversation(engine, encoder, TEXTS)
    again, _ = conversation(engine, encoder, TEXTS)
    fresh, _ = conversation(lockstep(world, encoder), encoder, TEXTS)
    assert again == fresh


def test_greedy_takes_the_likeliest_token(world, encoder):
    contexts, _ = conversation(lockstep(world, encoder), encoder, TEXTS[:1], turns=1, temperature=0.0)
    model = models.load_model(world.path("sft_policy"), dtype="float32").eval()
    prompt = encoder.encode(TEXTS[0])
    with torch.no_grad():
        first = int(model(torch.tensor([prompt])).logits[0, -1].argmax())
    assert contexts[0][len(prompt)] == first


def test_draw_follows_the_distribution():
    logits = torch.log(torch.tensor([[0.1, 0.2, 0.7]])).expand(20_000, 3)
    uniforms = torch.from_numpy(np.random.default_rng(0).random(20_000))
    tokens, logprobs = draw(logits, 1.0, uniforms)
    shares = np.bincount(tokens.numpy(), minlength=3) / 20_000
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.7], atol=0.015)
    np.testing.assert_allclose(logprobs.exp().unique(), [0.1, 0.2, 0.7], rtol=1e-5)


def test_a_greedy_draw_takes_the_likeliest_token_and_says_its_probability_at_temperature_one():
    logits = torch.log(torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.2, 0.3]])) + 3.0
    tokens, logprobs = draw(logits, 0.0, torch.tensor([0.0, 0.99], dtype=torch.float64))
    assert tokens.tolist() == [2, 0]
    np.testing.assert_allclose(logprobs.exp(), [0.7, 0.5], rtol=1e-5)


@pytest.mark.parametrize("vocabulary", [3, 32, 744, 1000])
def test_draw_inverts_the_cumulative_distribution(vocabulary):
    rng = np.random.default_rng(vocabulary)
    logits = torch.from_numpy(rng.normal(0, 3, (500, vocabulary)).astype(np.float32))
    uniforms = rng.random(500)
    tokens, logprobs = draw(logits, 0.7, torch.from_numpy(uniforms))
    expected = (logits.double() / 0.7).log_softmax(-1)
    cumulative = expected.exp().cumsum(-1).numpy()
    at = np.array([np.searchsorted(row, u, side="right") for row, u in zip(cumulative, uniforms, strict=True)])
    np.testing.assert_array_equal(tokens, at)
    np.testing.assert_allclose(logprobs, expected[torch.arange(500), tokens], atol=1e-5)


def test_draw_never_takes_a_token_without_probability():
    logits = torch.full((2000, 70), -1e4)
    logits[:, [5, 40]] = 0.0
    tokens, logprobs = draw(logits, 1.0, torch.linspace(0, 1 - 2**-53, 2000, dtype=torch.float64))
    assert set(tokens.tolist()) == {5, 40}
    np.testing.assert_allclose(logprobs, np.log(0.5), atol=1e-6)


def test_draw_at_the_edges_stays_in_the_vocabulary():
    logits = torch.tensor([[0.0, -1e9], [-1e9, 0.0]])
    for u in (0.0, 1.0 - 1e-16):
        tokens, _ = draw(logits, 1.0, torch.tensor([u, u], dtype=torch.float64))
        assert tokens.tolist() == [0, 1]


def test_a_context_beyond_the_models_positions_is_an_error_that_says_so(world, encoder):
    engine = lockstep(world, encoder)
    positions = world.experiment.policy.scratch.max_positions
    request = Request(0, [5] * (positions - 2), True, np.zeros(8))
    with pytest.raises(UserError, match=f"{positions} positions"):
        engine.sample([request], 1.0, 8)


def test_an_unknown_engine_names_the_nearest(world):
    with pytest.raises(UserError, match="did you mean 'lockstep'"):
        sampler("lokstep", str(world.path("sft_policy")), slots=1, dtype="float32", eos_id=1)


def test_an_adapter_is_merged_as_peft_merges_it(world, encoder, tmp_path):
    from turncredit.config import LoraConfig

    model = models.add_lora(
        models.load_model(world.path("sft_policy"), dtype="float32"), LoraConfig(rank=4, alpha=8), 0
    )
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    models.save_model(model, tmp_path / "adapter", base=world.path("sft_policy"), final=tmp_path / "adapter")
    engine = Lockstep(str(tmp_path / "adapter"), slots=3, dtype="float32", eos_id=encoder.eos_id)
    contexts, logprobs = conversation(engine, encoder, TEXTS)
    plain, _ = conversation(lockstep(world, encoder), encoder, TEXTS)
    assert contexts != plain
    with torch.no_grad():
        logits = model.eval()(torch.tensor([contexts[1]])).logits[0, :-1].log_softmax(-1)
    expected = logits.gather(1, torch.tensor(contexts[1][1:])[:, None])[:, 0].numpy()
    sampled = np.array(logprobs[1][1:]) != 0
    np.testing.assert_allclose(np.array(logprobs[1][1:])[sampled], expected[sampled], atol=1e-4)


def test_an_adapter_has_the_configured_strength_and_targets_and_the_weights_of_its_seed(world):
    from turncredit.config import LoraConfig

    settings = LoraConfig(rank=4, alpha=6, dropout=0.25, targets=("q_proj", "down_proj"))
    one, again, other = (
        models.add_lora(models.load_model(world.path("sft_policy"), dtype="float32"), settings, seed)
        for seed in (0, 0, 1)
    )
    drawn = [[value for name, value in model.state_dict().items() if "lora_A" in name] for model in (one, again, other)]
    assert all(torch.equal(first, second) for first, second in zip(*drawn[:2], strict=True))
    assert not any(torch.equal(first, third) for first, third in zip(drawn[0], drawn[2], strict=True))
    adapted = {name.rpartition(".")[2]: part for name, part in one.named_modules() if hasattr(part, "lora_A")}
    assert set(adapted) == {"q_proj", "down_proj"}
    for part in adapted.values():
        assert (part.scaling["default"], part.r["default"], part.lora_dropout["default"].p) == (1.5, 4, 0.25)


def window_turns(encoder, count=4):
    """Prompts of `count` turns that begin alike and differ further on."""
    stable = "<|task|> put a mug in shelf." + " You see a mug 1, a bed 2." * 6
    return [
        encoder.encode(f"{stable}<|obs|> On the shelf {turn}, you see a mug {turn}.<|act|>") for turn in range(count)
    ]


def test_a_prompt_made_anew_is_read_from_where_it_differs(world, encoder):
    prompts = window_turns(encoder)
    kept = lockstep(world, encoder)
    saved = []
    for turn, ids in enumerate(prompts):
        requests = [Request(slot, list(ids), True, np.random.default_rng([turn, slot]).random(6)) for slot in (2, 0)]
        before = kept.tokens_read
        found = kept.sample(requests, 1.0, 6)
        read = kept.tokens_read - before
        fresh = lockstep(world, encoder)
        expected = fresh.sample(requests, 1.0, 6)
        for one, two in zip(found, expected, strict=True):
            assert one.ids == two.ids
            np.testing.assert_allclose(one.logprobs, two.logprobs, atol=1e-5)
        saved.append((fresh.tokens_read - read) / len(ids))
    assert len(saved) > 1
    assert saved[0] == 0
    assert min(saved[1:]) > 0.6


@st.composite
def edited_contexts(draw_value):
    """Turns of three rollouts that begin alike. A turn extends its context, or replaces it, perhaps by another's."""
    tokens = st.integers(10, 60)
    prefix = draw_value(st.lists(tokens, min_size=1, max_size=12))
    contexts = [prefix + draw_value(st.lists(tokens, min_size=1, max_size=4)) for _ in range(3)]
    turns = [[(True, list(ids)) for ids in contexts]]
    for _ in range(draw_value(st.integers(1, 3))):
        turn = []
        for _ in range(3):
            new = draw_value(st.lists(tokens, min_size=1, max_size=6))
            other = contexts[draw_value(st.integers(0, 2))]
            first, last = sorted(draw_value(st.integers(0, len(other))) for _ in range(2))
            turn.append((draw_value(st.booleans()), new, other[:first], other[last:]))
        for row, (reset, new, before, after) in enumerate(turn):
            contexts[row] = before + new + after if reset else contexts[row] + new
        turns.append([(reset, contexts[row] if reset else new) for row, (reset, new, _, _) in enumerate(turn)])
    return turns


ENGINES = {"lockstep": Lockstep, "transformers": Generate}


@pytest.mark.parametrize("name", ENGINES)
@given(turns=edited_contexts(), seed=st.integers(0, 2**16))
@settings(max_examples=15)
def test_random_edits_of_contexts_give_what_reading_them_whole_gives(world, encoder, name, turns, seed):
    """The same tokens as a fresh engine that has read nothing, and log-probabilities to 1e-5."""

    def engine():
        return ENGINES[name](str(world.path("sft_policy")), slots=3, dtype="float32", eos_id=encoder.eos_id)

    kept, contexts = engine(), [[], [], []]
    for number, turn in enumerate(turns):
        uniforms = np.random.default_rng([seed, number]).random((3, 4))
        contexts = [ids if reset else contexts[row] + ids for row, (reset, ids) in enumerate(turn)]
        found = kept.sample(
            [Request(row, list(ids), reset, uniforms[row]) for row, (reset, ids) in enumerate(turn)], 1, 4
        )
        whole = [Request(row, list(ids), True, uniforms[row]) for row, ids in enumerate(contexts)]
        expected = engine().sample(whole, 1, 4)
        for row, (one, two) in enumerate(zip(found, expected, strict=True)):
            assert one.ids == two.ids
            np.testing.assert_allclose(one.logprobs, two.logprobs, atol=1e-5)
            contexts[row] = contexts[row] + one.ids


@given(
    before=st.lists(st.integers(10, 60), min_size=1, max_size=30),
    after=st.lists(st.integers(10, 60), min_size=1, max_size=30),
    same=st.integers(0, 30),
)
@settings(max_examples=25)
def test_a_replaced_context_is_read_from_the_first_token_that_differs(world, encoder, before, after, same):
    """What follows the difference is read again, even where it is the same text: its positions differ."""
    after = before[:same] + after
    engine = lockstep(world, encoder, slots=1)
    engine.sample([Request(0, list(before), True, np.zeros(1))], 1.0, 1)
    read = engine.tokens_read
    engine.sample([Request(0, list(after), True, np.zeros(1))], 1.0, 1)
    shared = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
    shared = min(len(before), len(after)) if shared is None else shared
    assert engine.tokens_read - read == len(after) - min(shared, len(after) - 1)


def test_a_prompt_that_a_group_begins_with_is_read_once(world, encoder):
    engine = lockstep(world, encoder, slots=8)
    ids, uniforms = encoder.encode(TEXTS[1]), np.random.default_rng(0).random((8, 1))
    found = engine.sample([Request(slot, list(ids), True, uniforms[slot]) for slot in range(8)], 1.0, 1)
    assert engine.tokens_read == len(ids)
    alone = lockstep(world, encoder, slots=1).sample([Request(0, list(ids), True, uniforms[5])], 1.0, 1)[0]
    assert found[5].ids == alone.ids
    np.testing.assert_allclose(found[5].logprobs, alone.logprobs, atol=1e-5)


def test_the_same_prompt_again_gives_the_same_distribution(world, encoder):
    """All of it is cached, but for its last token."""
    engine = lockstep(world, encoder)
    ids = encoder.encode(TEXTS[1])
    one, two = (engine.sample([Request(1, list(ids), True, np.full(1, 0.3))], 1.0, 1)[0] for _ in range(2))
    assert one.ids == two.ids
    np.testing.assert_allclose(one.logprobs, two.logprobs, atol=1e-5)
    assert engine.tokens_read == len(ids) + 1


@pytest.mark.parametrize("turns", [1, 2])
def test_samples_do_not_depend_on_the_blocks_they_are_played_in(world, encoder, monkeypatch, turns):
    texts = TEXTS * 3
    whole, cut = lockstep(world, encoder, slots=9), lockstep(world, encoder, slots=9)
    expected, expected_logprobs = conversation(whole, encoder, texts)
    monkeypatch.setitem(engine_module.BLOCK_BYTES, whole._model.device.type, 1)
    monkeypatch.setattr(engine_module, "BLOCK_TURNS", turns)
    found, logprobs = conversation(cut, encoder, texts)
    assert cut.passes > whole.passes
    assert found == expected
    for one, two in zip(logprobs, expected_logprobs, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_samples_do_not_depend_on_how_many_are_read_in_a_pass(world, encoder, monkeypatch):
    texts = TEXTS * 3
    whole, each = lockstep(world, encoder, slots=9), lockstep(world, encoder, slots=9)
    expected, _ = conversation(whole, encoder, texts)
    monkeypatch.setitem(engine_module.PASS_SCORES, whole._model.device.type, 1)
    found, _ = conversation(each, encoder, texts)
    assert found == expected
    assert each.tokens_read == whole.tokens_read
    assert each.passes > whole.passes


@pytest.mark.parametrize("least", [0.0, 0.4, 2.0])
def test_guesses_never_change_a_sample(world, encoder, monkeypatch, least):
    """Neither without any, nor with many wrong ones."""
    texts = TEXTS * 3
    expected, _ = conversation(
        Generate(str(world.path("sft_policy")), slots=9, dtype="float32", eos_id=encoder.eos_id),
        encoder,
        texts,
        turns=4,
    )
    monkeypatch.setattr(guesses, "LEAST", least)
    found, _ = conversation(lockstep(world, encoder, slots=9), encoder, texts, turns=4)
    assert found == expected


def test_right_guesses_save_passes(world, encoder):
    engine = lockstep(world, encoder)
    request = Request(0, encoder.encode(TEXTS[0]), True, np.random.default_rng(0).random(6))
    passes = []
    for _ in range(2):
        before = engine.passes
        response = engine.sample([request], 1.0, 6)[0]
        passes.append(engine.passes - before)
    assert len(response.ids) >= 3
    assert passes == [len(response.ids), 2]


def test_guesses_follow_what_was_seen_as_long_as_it_is_likely():
    guessed = Guesses(eos_id=0)
    guessed.learn([[5, 6, 7, 0]] * 3 + [[5, 6, 8, 0]] + [[5, 9, 0]])
    assert guessed.after([5]) == [6, 7]
    assert guessed.after([9]) == []
    guessed.learn([[5, 6, 8, 0]] * 4)
    assert guessed.after([5]) == [6, 8]
    guessed.learn([[5, token, 0] for token in range(10, 40)])
    assert guessed.after([5]) == []
