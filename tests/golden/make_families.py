#!/usr/bin/env python3
"""Makes the goldens of families_test.cpp: a tiny random model of each family of transformers, with every tensor
perturbed, and what it gives.

For each family FAMILY in OUT:
  FAMILY/config.json, model.safetensors   as save_pretrained writes them, fp32
  FAMILY/golden.json                      Tandem's keys of that model, token ids, targets, loss, losses of 20 steps
  FAMILY/golden.safetensors               logits, and the gradient of each parameter ("grad." and its name)

  python3 tests/golden/make_families.py OUT            # with torch and transformers 5; seconds on a CPU
  python3 tests/golden/make_families.py OUT --families gemma2,phi3
"""
import argparse
import json
import math
import os

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

BATCH, CONTEXT, VOCAB, STEPS = 2, 24, 99, 20
LR, BETAS, EPS, DECAY = 1e-3, (0.9, 0.95), 1e-8, 0.1

SHAPE = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=64, max_position_embeddings=64, rms_norm_eps=1e-3, pad_token_id=None, bos_token_id=None,
             eos_token_id=None, attention_dropout=0.0, use_cache=False)
KEYS = dict(family="llama", layers=4, width=32, heads=4, kv_heads=2, ffn=64, vocab=VOCAB, context=CONTEXT,
            norm_eps=1e-3, tied=False, qkv_bias=False, rope_theta=500.0)
PLAIN = dict(rope_type="default", rope_theta=500.0)
WINDOWED, FULL = "sliding_attention", "full_attention"


def rope(kind, theta=500.0, **numbers):
    """The same scaling for transformers and as Tandem's text."""
    def text(value):
        if isinstance(value, list):
            return " ".join(repr(float(v)) for v in value)
        return str(int(value)) if isinstance(value, (bool, int)) else repr(value)

    ours = f"{kind}:" + ",".join(f"{name}={text(value)}" for name, value in numbers.items())
    return dict(rope_type=kind, rope_theta=theta, **numbers), ours


LLAMA3 = rope("llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
LINEAR = rope("linear", factor=2.0)
YARN = rope("yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=0.25)
YARN_SMOOTH = rope("yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=0.25, truncate=False)
YARN_MSCALE = rope("yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=0.25, mscale=1.2,
                   mscale_all_dim=0.7)
GLOBAL = rope("linear", theta=1000.0, factor=2.0)
SHORT, LONG = [1.0, 1.1, 1.3, 1.7], [1.5, 2.0, 3.0, 4.5]


def longrope(original):
    theirs, _ = rope("longrope", short_factor=SHORT, long_factor=LONG, partial_rotary_factor=0.5)
    _, ours = rope("longrope", short_factor=SHORT, long_factor=LONG, original_max_position_embeddings=original,
                   max_position_embeddings=64)
    return theirs, ours


# Family: the class's model_type, what its config has beyond SHAPE, and Tandem's keys beyond KEYS.
FAMILIES = {
    "llama": ("llama", dict(head_dim=16, attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3[0]),
              dict(head=16, qkv_bias=True, out_bias=True, ffn_bias=True, rope_scaling=LLAMA3[1])),
    "mistral": ("mistral", dict(head_dim=16, sliding_window=8, rope_parameters=LINEAR[0]),
                dict(head=16, window=8, rope_scaling=LINEAR[1])),
    "qwen2": ("qwen2", dict(use_sliding_window=True, sliding_window=8, max_window_layers=2, tie_word_embeddings=True,
                            rope_parameters=YARN_SMOOTH[0]),
              dict(window=8, full_layers=[0, 1], tied=True, qkv_bias=True, rope_scaling=YARN_SMOOTH[1])),
    "qwen3": ("qwen3", dict(head_dim=16, attention_bias=True, rope_parameters=YARN_MSCALE[0]),
              dict(head=16, qkv_bias=True, out_bias=True, qk_norm="head", rope_scaling=YARN_MSCALE[1])),
    "gemma2": ("gemma2", dict(head_dim=16, query_pre_attn_scalar=9, attn_logit_softcapping=2.0,
                              final_logit_softcapping=5.0, sliding_window=8, tie_word_embeddings=True,
                              rope_parameters=PLAIN),
               dict(head=16, attention_scale=1 / 3, attention_softcap=2.0, logit_softcap=5.0, window=8,
                    full_layers=[1, 3], tied=True, embed_scale=math.sqrt(32), norm_plus_one=True, norm_place="both",
                    activation="gelu")),
    "gemma3_text": ("gemma3_text", dict(head_dim=16, query_pre_attn_scalar=9, sliding_window=8, tie_word_embeddings=True,
                                        layer_types=[WINDOWED, WINDOWED, FULL, WINDOWED],
                                        rope_parameters={FULL: GLOBAL[0], WINDOWED: dict(PLAIN)}),
                    dict(head=16, attention_scale=1 / 3, window=8, full_layers=[2], tied=True, embed_scale=math.sqrt(32),
                         norm_plus_one=True, norm_place="both", activation="gelu", qk_norm="head", rope_theta=1000.0,
                         rope_local_theta=500.0, rope_scaling=GLOBAL[1])),
    "phi3": ("phi3", dict(hidden_size=64, sliding_window=8, original_max_position_embeddings=16,
                          rope_parameters=longrope(16)[0]),
             dict(width=64, window=8, rope_dims=8, rope_scaling=longrope(16)[1])),
    "phi3_short": ("phi3", dict(hidden_size=64, original_max_position_embeddings=32, rope_parameters=longrope(32)[0]),
                   dict(width=64, rope_dims=8, rope_scaling=longrope(32)[1])),
    "smollm3": ("smollm3", dict(no_rope_layers=[1, 0, 1, 1], use_sliding_window=True, sliding_window=8,
                                layer_types=[FULL, WINDOWED, WINDOWED, FULL], attention_bias=True, mlp_bias=True,
                                tie_word_embeddings=True, rope_parameters=dict(PLAIN)),
                dict(no_rope_layers=[1], window=8, full_layers=[0, 3], qkv_bias=True, out_bias=True, ffn_bias=True,
                     tied=True)),
    "olmo2": ("olmo2", dict(attention_bias=True, rope_parameters=dict(PLAIN)),
              dict(qk_norm="all", norm_place="after", qkv_bias=True, out_bias=True)),
    "olmo3": ("olmo3", dict(sliding_window=8, rope_parameters={FULL: YARN[0], WINDOWED: dict(PLAIN)}),
              dict(qk_norm="all", norm_place="after", window=8, full_layers=[3], rope_local_theta=500.0,
                   rope_scaling=YARN[1])),
    "granite": ("granite", dict(embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.2,
                                logits_scaling=4.0, tie_word_embeddings=True, rope_parameters=dict(PLAIN)),
                dict(embed_scale=3.0, residual_scale=0.5, attention_scale=0.2, logit_scale=0.25, tied=True)),
}


def perturb(model, seed):
    """Fresh biases are 0, norms 1 and matrices small: none of that would show a mistake."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() == 1:
                p.add_(0.3 * noise)
            elif "embed_tokens" in name:
                p.copy_(0.4 * noise)
            else:
                p.copy_(noise / math.sqrt(p.shape[1]))


def loss_of(logits, targets):
    return F.cross_entropy(logits.float().view(-1, VOCAB), targets.view(-1), ignore_index=-1)


def make(family, folder):
    kind, theirs, ours = FAMILIES[family]
    config = AutoConfig.for_model(kind, **{**SHAPE, **theirs})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    perturb(model, seed=sum(family.encode()))
    model.save_pretrained(folder)

    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, VOCAB, (BATCH, CONTEXT + 1), generator=generator)
    tokens, targets = ids[:, :-1].contiguous(), ids[:, 1:].clone()
    targets[:, -2:] = -1  # a ragged tail that does not count

    params = dict(model.named_parameters())
    logits = model(input_ids=tokens).logits
    loss = loss_of(logits, targets)
    loss.backward()
    tensors = {"logits": logits.detach().float().contiguous()}
    for name, p in params.items():
        tensors["grad." + name] = p.grad.clone().contiguous()

    decayed = [p for p in params.values() if p.dim() > 1]
    plain = [p for p in params.values() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([dict(params=decayed, weight_decay=DECAY), dict(params=plain, weight_decay=0.0)],
                                  lr=LR, betas=BETAS, eps=EPS)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        step_loss = loss_of(model(input_ids=tokens).logits, targets)
        step_loss.backward()
        optimizer.step()
        losses.append(step_loss.item())

    save_file(tensors, os.path.join(folder, "golden.safetensors"))
    record = dict(transformers=transformers.__version__, torch=torch.__version__, model={**KEYS, **ours}, batch=BATCH,
                  tokens=tokens.tolist(), targets=targets.tolist(), loss=loss.item(), losses=losses, lr=LR,
                  betas=BETAS, eps=EPS, decay=DECAY)
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump(record, f)
        f.write("\n")
    print(f"{family}: {sum(p.numel() for p in params.values())} parameters, loss {losses[0]:.6f} to {losses[-1]:.6f}, "
          f"logits to {logits.abs().max().item():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--families", default=",".join(FAMILIES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for family in args.families.split(","):
        if family not in FAMILIES:
            parser.error(f"no family {family}; there are {', '.join(FAMILIES)}")
        make(family, os.path.join(args.out, family))


main()
