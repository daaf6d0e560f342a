// SPDX-License-Identifier: Apache-2.0
// Every operation of the CUDA backend on its own against the CPU backend in float and in double,
// over awkward shapes. Needs a GPU. What launches kernels of this project alone is tagged [own],
// for compute-sanitizer's racecheck, which cannot look into cuBLASLt's.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "catch.h"
#include "operation_sides.h"

using namespace cua;
using backend::Rows;
using test::CpuSide;
using test::CudaSide;
using test::normal_values;
using test::Sequences;
using test::uniform_values;
using test::Values;

namespace {

backend::Dimensions dimensions() {
  backend::Dimensions d;
  d.hidden = 192;
  d.intermediate = 320;
  d.heads = 4;
  d.kv_heads = 2;
  d.head_dim = 256;
  d.rotary_dim = 64;
  d.rope_theta = 1e7;
  d.rms_norm_eps = 1e-6;
  d.gdn_key_heads = 2;
  d.gdn_value_heads = 4;
  d.gdn_key_dim = 128;
  d.gdn_value_dim = 128;
  d.conv_kernel = 4;
  d.gdn_layers = {true, false};
  return d;
}

constexpr size_t kGdnLayer = 0, kAttentionLayer = 1;
const backend::Dimensions kD = dimensions();
const size_t kKeyWidth = 256, kValueWidth = 512, kChannels = 1024, kProjected = 1024 + 512 + 8;
const size_t kQWidth = 1024, kKvWidth = 512;

// The lengths that an error of tiles, chunks, windows or buckets would show at, alone and in
// company.
const std::vector<std::vector<size_t>> kShapes{{1},
                                               {2},
                                               {3},
                                               {4},
                                               {63},
                                               {64},
                                               {65},
                                               {127},
                                               {128},
                                               {129},
                                               {200},
                                               {511},
                                               {700},
                                               {2079},
                                               {64, 1, 129},
                                               {1, 1, 1},
                                               {700, 1, 2, 1, 65},
                                               {1, 64, 3, 128, 1, 2, 300}};
const std::vector<std::vector<size_t>> kShort{{70, 1, 3}, {129}};

std::string words(const std::vector<size_t> &lengths) {
  std::string text;
  for (const size_t length : lengths) text += (text.empty() ? "" : " ") + std::to_string(length);
  return text;
}

// Both CPU backends and the GPU over every shape. `run(side, batch)` returns named results, whose
// rows differ from double's by at most `most`, relative to the row; float's by a thousandth.
class Comparison {
 public:
  Comparison(const char *operation, double most)
      : operation_(operation), most_(most), gpu_(kD), single_(kD), oracle_(kD) {}
  ~Comparison() { std::printf("%-18s worst row %.5f, allowed %.5f\n", operation_, worst_, most_); }

  template <class Run>
  void check(const std::vector<size_t> &lengths, const Run &run) {
    const Sequences sequences(lengths);
    const auto on = [&](auto &side) {
      return side.pass(sequences, [&](const auto &batch) { return run(side, batch); });
    };
    const std::map<std::string, Values> got = on(gpu_), single = on(single_), exact = on(oracle_);
    gpu_.backend().wait();
    for (const auto &[name, wanted] : exact) {
      const size_t rows = name.starts_with("last ") ? sequences.count() : sequences.rows();
      const double error = test::worst_row(got.at(name), wanted, rows);
      const double float_error = test::worst_row(single.at(name), wanted, rows);
      worst_ = std::max(worst_, error);
      CAPTURE(operation_, name, words(lengths), error, float_error);
      CHECK(error <= most_);
      CHECK(float_error <= 1e-3);
      CHECK(test::worst_row(got.at(name), single.at(name), rows) <= most_ + 1e-3);
    }
  }
  template <class Run>
  void check_all(const std::vector<std::vector<size_t>> &shapes, const Run &run) {
    for (const auto &lengths : shapes) check(lengths, run);
  }

 private:
  const char *operation_;
  double most_, worst_ = 0;
  CudaSide gpu_;
  CpuSide<float> single_;
  CpuSide<double> oracle_;
};

using Results = std::map<std::string, Values>;

void embed(const std::vector<std::vector<size_t>> &shapes) {
  const auto table = normal_values(64 * kD.hidden, 1);
  Comparison("embed", 0).check_all(shapes, [&](auto &side, const auto &batch) {
    const auto x = side.make(batch.rows(), kD.hidden);
    side.backend().embed(batch, side.matrix(table, 64), x);
    return Results{{"x", side.get(x)}};
  });
}

void rms_norm(const std::vector<std::vector<size_t>> &shapes) {
  for (const float scale : {1e-4f, 1.0f, 1e4f}) {
    const auto w = normal_values(kD.hidden, 2, 0.2f);
    Comparison("rms_norm", 0.004).check_all(shapes, [&](auto &side, const auto &batch) {
      const auto x = side.put(normal_values(batch.rows() * kD.hidden, 3, scale), batch.rows());
      const auto y = side.make(batch.rows(), kD.hidden);
      side.backend().rms_norm(x, side.vector(w), y);
      return Results{{"y", side.get(y)}};
    });
  }
}

void gather_last(const std::vector<std::vector<size_t>> &shapes) {
  Comparison("gather_last", 0).check_all(shapes, [&](auto &side, const auto &batch) {
    const auto all = side.put(normal_values(batch.rows() * 64, 3), batch.rows());
    const auto last = side.make(batch.sequences(), 64), part = side.make(batch.sequences(), 16);
    side.backend().gather_last(batch, all, last);
    side.backend().gather_last(batch, all.columns(24, 16), part);
    return Results{{"last row", side.get(last)}, {"last part", side.get(part)}};
  });
}

void silu_mul(const std::vector<std::vector<size_t>> &shapes) {
  for (const float scale : {1.0f, 300.0f}) {
    Comparison("silu_mul", 0.008).check_all(shapes, [&](auto &side, const auto &batch) {
      const auto gate_up =
          side.put(normal_values(batch.rows() * 2 * kD.intermediate, 4, scale), batch.rows());
      const auto y = side.make(batch.rows(), kD.intermediate);
      side.backend().silu_mul(gate_up, y);
      return Results{{"y", side.get(y)}};
    });
  }
}

void gated_norm(const std::vector<std::vector<size_t>> &shapes) {
  const auto w = normal_values(kD.gdn_value_dim, 5, 0.2f, 1);
  Comparison("gated_norm", 0.008).check_all(shapes, [&](auto &side, const auto &batch) {
    const auto x = side.put(normal_values(batch.rows() * kValueWidth, 6, 0.1f), batch.rows());
    const auto z = side.put(normal_values(batch.rows() * (kValueWidth + 16), 7, 2), batch.rows());
    side.backend().gated_norm(x, z.columns(8, kValueWidth), side.vector(w), x);
    return Results{{"y", side.get(x)}};
  });
}

void readout(const std::vector<std::vector<size_t>> &shapes) {
  const auto table = normal_values(64 * kD.hidden, 1, 0.1f);
  std::array<uint32_t, 26> letters;
  for (uint32_t i = 0; i < 26; ++i) letters[i] = 32 + i;
  Comparison("readout", 1e-5).check_all(shapes, [&](auto &side, const auto &batch) {
    const auto x = side.put(normal_values(batch.sequences() * kD.hidden, 8, 3), batch.sequences());
    std::vector<float> logits(26 * batch.sequences());
    side.backend().readout(x, side.matrix(table, 64), letters, logits.data(), nullptr);
    return Results{{"last logits", side.logits(logits)}};
  });
}

// A_log and dt_bias shift the gates: from hardly any decay to g of -316 and below.
void gdn_prepare(const std::vector<std::vector<size_t>> &shapes) {
  const auto conv = normal_values(kChannels * 4, 9, 0.5f);
  for (const float a_log : {-8.0f, 0.0f, 4.6f}) {
    const std::vector<float> a_logs(kD.gdn_value_heads, a_log);
    const auto dt_bias = normal_values(kD.gdn_value_heads, 10);
    Comparison("gdn_prepare", 0.012).check_all(shapes, [&](auto &side, const auto &batch) {
      const size_t T = batch.rows();
      const auto projected = side.put(normal_values(T * kProjected, 11, 1.5f), T);
      const auto q = side.make(T, kKeyWidth), k = side.make(T, kKeyWidth);
      const auto v = side.make(T, kValueWidth);
      const auto g = side.make_gates(T), beta = side.make_gates(T);
      side.backend().gdn_prepare(batch, kGdnLayer, projected, side.vector(conv),
                                 side.vector(a_logs), side.vector(dt_bias), q, k, v, g, beta);
      return Results{{"q", side.get(q)},
                     {"k", side.get(k)},
                     {"v", side.get(v)},
                     {"g", side.get_gates(g)},
                     {"beta", side.get_gates(beta)}};
    });
  }
}

// Unit vectors, as gdn_prepare leaves them.
std::vector<float> unit_rows(size_t rows, size_t width, uint32_t seed, float scale) {
  auto values = normal_values(rows * width, seed);
  for (size_t head = 0; head + 128 <= values.size(); head += 128) {
    double norm = 0;
    for (size_t i = 0; i < 128; ++i) norm += double{values[head + i]} * values[head + i];
    for (size_t i = 0; i < 128; ++i) {
      values[head + i] =
          test::as_bf16(static_cast<float>(values[head + i] / std::sqrt(norm)) * scale);
    }
  }
  return values;
}

struct Decay {
  const char *name;
  float low, high;
};
constexpr Decay kDecays[] = {{"none", 0, 0},
                             {"usual", -0.5f, 0},
                             {"strong", -5, 0},
                             {"to -316", -316, 0},
                             {"-316", -316, -316}};

// Equal keys are the hardest system to solve, A being full; its bf16 inverse shows.
void gdn_scan(const std::vector<std::vector<size_t>> &shapes, const Decay &decay,
              const std::string &keys = "random") {
  Comparison("gdn_scan", keys == "equal" ? 0.08 : 0.012)
      .check_all(shapes, [&](auto &side, const auto &batch) {
        const size_t T = batch.rows();
        auto q_values = unit_rows(T, kKeyWidth, 12, 0.0883f),
             k_values = unit_rows(T, kKeyWidth, 13, 1);
        if (keys == "zero") {
          std::fill(q_values.begin(), q_values.end(), 0.0f);
          std::fill(k_values.begin(), k_values.end(), 0.0f);
        } else if (keys == "equal") {
          for (size_t i = kKeyWidth; i < k_values.size(); ++i)
            k_values[i] = k_values[i - kKeyWidth];
        }
        const auto q = side.put(q_values, T), k = side.put(k_values, T);
        const auto v = side.put(normal_values(T * kValueWidth, 14), T);
        const auto g =
            side.put_gates(uniform_values(T * kD.gdn_value_heads, 15, decay.low, decay.high), T);
        const auto beta = side.put_gates(uniform_values(T * kD.gdn_value_heads, 16, 0, 1), T);
        const auto o = side.make(T, kValueWidth);
        side.backend().gdn_scan(batch, kGdnLayer, q, k, v, g, beta, o);
        return Results{{"o", side.get(o)}};
      });
}

void attention_prepare(const std::vector<std::vector<size_t>> &shapes) {
  const auto q_norm = normal_values(kD.head_dim, 17, 0.2f),
             k_norm = normal_values(kD.head_dim, 18, 0.2f);
  for (const Rows rows : {Rows::all, Rows::last}) {
    Comparison("attention_prepare", 0.008).check_all(shapes, [&](auto &side, const auto &batch) {
      const size_t T = batch.rows(), queries = rows == Rows::all ? T : batch.sequences();
      const auto q_gate = side.put(normal_values(queries * 2 * kQWidth, 19), queries);
      const auto kv = side.put(normal_values(T * 2 * kKvWidth, 20), T);
      side.backend().attention_prepare(batch, kAttentionLayer, rows, q_gate, kv,
                                       side.vector(q_norm), side.vector(k_norm));
      return Results{{rows == Rows::all ? "q" : "last q", side.get(q_gate)}, {"kv", side.get(kv)}};
    });
  }
}

// scale 1: weights spread over the keys; 4: nearly all on one.
void attention(const std::vector<std::vector<size_t>> &shapes) {
  for (const Rows rows : {Rows::all, Rows::last}) {
    for (const float scale : {0.0f, 0.3f, 1.0f, 4.0f}) {
      Comparison("attention", 0.012).check_all(shapes, [&](auto &side, const auto &batch) {
        const size_t T = batch.rows(), queries = rows == Rows::all ? T : batch.sequences();
        const auto q_gate = side.put(normal_values(queries * 2 * kQWidth, 21, scale), queries);
        const auto kv = side.put(normal_values(T * 2 * kKvWidth, 22), T);
        const auto o = side.make(queries, kQWidth);
        side.backend().attention(batch, kAttentionLayer, rows, q_gate, kv, o);
        return Results{{rows == Rows::all ? "o" : "last o", side.get(o)}};
      });
    }
  }
}

void every_decay(const std::vector<std::vector<size_t>> &shapes) {
  for (const Decay &decay : kDecays) gdn_scan(shapes, decay);
  gdn_scan(shapes, kDecays[1], "zero");
  gdn_scan(shapes, kDecays[0], "equal");
  gdn_scan(shapes, kDecays[1], "equal");
}

// A sequence of `split` rows, then the rest from the state that they left: the bits of one pass.
// whole(batch, first row, rows) runs one operation over those rows of one sequence.
template <class Run>
void check_split(const Run &run) {
  for (const size_t split : {64, 128, 320, 640}) {
    for (const size_t rest : {1, 2, 3, 4, 63, 64, 65, 200}) {
      CudaSide side(kD);
      const Sequences both({split + rest}), head({split}), tail({1, rest, 2});
      const auto whole = side.pass(both, [&](const auto &b) { return run(side, b, 0, 0); });
      CudaSide::State state(kD, split);
      side.pass(
          head, [&](const auto &b) { return run(side, b, 0, 0); }, {}, &state);
      const auto got = side.pass(tail, [&](const auto &b) { return run(side, b, split, 1); },
                                 {nullptr, &state, nullptr});
      side.backend().wait();
      for (const auto &[name, values] : whole) {
        const size_t cols = values.size() / (split + rest);
        const auto &part = got.at(name);
        CAPTURE(name, split, rest);
        REQUIRE(part.size() == cols * (rest + 3));
        const auto expected = values.end() - static_cast<ptrdiff_t>(cols * rest);
        CHECK(std::equal(expected, values.end(), part.begin() + static_cast<ptrdiff_t>(cols)));
      }
    }
  }
}

// Rows [first, first + rows - extra) of fixed values, after `before` rows of others and with others
// behind: what a sequence in company sees.
std::vector<float> slice(const std::vector<float> &values, size_t width, size_t first,
                         size_t before, size_t rows) {
  auto out = normal_values(rows * width, 99);
  const size_t count = before == 0 ? rows : rows - 3;
  std::copy_n(values.begin() + static_cast<ptrdiff_t>(first * width), count * width,
              out.begin() + static_cast<ptrdiff_t>(before * width));
  return out;
}

}  // namespace

TEST_CASE("row by row: embed, norms, silu_mul, gather, readout", "[rows]") {
  auto shapes = kShapes;
  shapes.push_back({16384});
  embed(shapes);
  rms_norm(shapes);
  gather_last(shapes);
  silu_mul(shapes);
  gated_norm(shapes);
  readout(kShapes);
}

TEST_CASE("linear, with and without adding", "[linear]") {
  for (const auto &[outputs, depth] :
       {std::pair<size_t, size_t>{328, 192}, {192, 320}, {512, 64}, {72, 1024}}) {
    const auto w = normal_values(outputs * depth, 23, 1 / std::sqrt(static_cast<float>(depth)));
    for (const bool add : {false, true}) {
      auto shapes = kShapes;
      shapes.push_back({16384});
      Comparison("linear", 0.006).check_all(shapes, [&](auto &side, const auto &batch) {
        const size_t T = batch.rows();
        const auto x = side.put(normal_values(T * depth, 24), T);
        const auto y = side.put(normal_values(T * outputs, 25), T);
        if (add) {
          side.backend().linear_add(x, side.matrix(w, outputs), y);
        } else {
          side.backend().linear(x, side.matrix(w, outputs), y);
        }
        return Results{{"y", side.get(y)}};
      });
    }
  }
}

TEST_CASE("gdn_prepare: convolution, SiLU, norms and gates", "[gdn]") {
  auto shapes = kShapes;
  shapes.push_back({16384});
  gdn_prepare(shapes);
}

TEST_CASE("gdn_scan: every decay, zero and equal keys", "[gdn]") {
  every_decay(kShapes);
  gdn_scan({{16384}}, kDecays[1]);
  gdn_scan({{16384}}, kDecays[0]);
}

TEST_CASE("attention_prepare: norms and rotary embedding", "[attention]") {
  auto shapes = kShapes;
  shapes.push_back({16384});
  attention_prepare(shapes);
}

TEST_CASE("attention: every row and the last, spread and sharp", "[attention]") {
  attention(kShapes);
}

TEST_CASE("attention over 16384 keys", "[attention]") {
  // The last query of each of several prompts; the rest follow from the shorter ones.
  Comparison("attention", 0.012).check({16384}, [&](auto &side, const auto &batch) {
    const auto q_gate = side.put(normal_values(2 * kQWidth, 21), 1);
    const auto kv = side.put(normal_values(batch.rows() * 2 * kKvWidth, 22), batch.rows());
    const auto o = side.make(1, kQWidth);
    side.backend().attention(batch, kAttentionLayer, Rows::last, q_gate, kv, o);
    return Results{{"last o", side.get(o)}};
  });
}

TEST_CASE("an operation goes on from the state of a prefix with the bits of one pass", "[prefix]") {
  constexpr size_t kMost = 1024;
  const auto conv = normal_values(kChannels * 4, 9, 0.5f);
  const std::vector<float> a_logs(kD.gdn_value_heads, 0.0f);
  const auto dt_bias = normal_values(kD.gdn_value_heads, 10);
  const auto projected = normal_values(kMost * kProjected, 11, 1.5f);
  check_split([&](CudaSide &side, const CudaSide::Batch &batch, size_t first, size_t before) {
    const size_t T = batch.rows();
    const auto p = side.put(slice(projected, kProjected, first, before, T), T);
    const auto q = side.make(T, kKeyWidth), k = side.make(T, kKeyWidth);
    const auto v = side.make(T, kValueWidth);
    const auto g = side.make_gates(T), beta = side.make_gates(T);
    side.backend().gdn_prepare(batch, kGdnLayer, p, side.vector(conv), side.vector(a_logs),
                               side.vector(dt_bias), q, k, v, g, beta);
    return Results{{"q", side.get(q)},
                   {"k", side.get(k)},
                   {"v", side.get(v)},
                   {"g", side.get_gates(g)},
                   {"beta", side.get_gates(beta)}};
  });
  const auto q_values = unit_rows(kMost, kKeyWidth, 12, 0.0883f);
  const auto k_values = unit_rows(kMost, kKeyWidth, 13, 1);
  const auto v_values = normal_values(kMost * kValueWidth, 14);
  const auto g_values = uniform_values(kMost * kD.gdn_value_heads, 15, -0.5f, 0);
  const auto beta_values = uniform_values(kMost * kD.gdn_value_heads, 16, 0, 1);
  check_split([&](CudaSide &side, const CudaSide::Batch &batch, size_t first, size_t before) {
    const size_t T = batch.rows(), heads = kD.gdn_value_heads;
    const auto q = side.put(slice(q_values, kKeyWidth, first, before, T), T);
    const auto k = side.put(slice(k_values, kKeyWidth, first, before, T), T);
    const auto v = side.put(slice(v_values, kValueWidth, first, before, T), T);
    const auto g = side.put_gates(slice(g_values, heads, first, before, T), T);
    const auto beta = side.put_gates(slice(beta_values, heads, first, before, T), T);
    const auto o = side.make(T, kValueWidth);
    side.backend().gdn_scan(batch, kGdnLayer, q, k, v, g, beta, o);
    return Results{{"o", side.get(o)}};
  });
  const auto q_gate_values = normal_values(kMost * 2 * kQWidth, 21);
  const auto kv_values = normal_values(kMost * 2 * kKvWidth, 22);
  const auto q_norm = normal_values(kD.head_dim, 17, 0.2f),
             k_norm = normal_values(kD.head_dim, 18, 0.2f);
  check_split([&](CudaSide &side, const CudaSide::Batch &batch, size_t first, size_t before) {
    const size_t T = batch.rows();
    const auto q_gate = side.put(slice(q_gate_values, 2 * kQWidth, first, before, T), T);
    const auto kv = side.put(slice(kv_values, 2 * kKvWidth, first, before, T), T);
    const auto o = side.make(T, kQWidth);
    side.backend().attention_prepare(batch, kAttentionLayer, Rows::all, q_gate, kv,
                                     side.vector(q_norm), side.vector(k_norm));
    side.backend().attention(batch, kAttentionLayer, Rows::all, q_gate, kv, o);
    return Results{{"o", side.get(o)}};
  });
}

TEST_CASE("every kernel of ours over a short batch, for the sanitizers", "[own]") {
  embed(kShort);
  rms_norm(kShort);
  gather_last(kShort);
  silu_mul(kShort);
  gated_norm(kShort);
  readout(kShort);
  gdn_prepare(kShort);
  gdn_scan(kShort, kDecays[1]);
  attention_prepare(kShort);
  attention(kShort);
}
