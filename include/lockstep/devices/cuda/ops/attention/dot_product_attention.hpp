/// \file
/// Scaled dot-product attention on a GPU. A block of threads has a tile of rows of one head, and
/// reads the other operand in tiles of TILE rows through shared memory:
///
///     forward            warps have queries; tiles of k, v      lane: a key of the tile, then
///     backward_queries   warps have queries; tiles of k, v            elements of the result
///     backward_keys      warps have keys; tiles of q, do
///
/// Invariants: no array of queries x keys is stored; no sum uses an atomic, so its order depends only
/// on the sizes; products are in float, without tensor cores.
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/devices/cuda/device.hpp"
#include "lockstep/devices/cuda/support/philox.hpp"
#include "lockstep/layers/attention/dot_product_attention.hpp"

namespace lockstep {

namespace detail::cuda {

inline constexpr Source dot_product_attention_source{"dot_product_attention", R"cuda(
#define LANE ((int)threadIdx.x % 32)
#define WARP ((int)threadIdx.x / 32)
#define BLOCK_ROWS (WARPS * EACH)
// Vectors of 32 elements that cover a head: each lane has one element of each.
#define KEY_PARTS ((KEY_DIM + 31) / 32)
#define VALUE_PARTS ((VALUE_DIM + 31) / 32)
// Rows in shared memory begin in different banks.
#define KEY_ROW (32 * KEY_PARTS + 1)
#define VALUE_ROW (32 * VALUE_PARTS + 1)
#define TILES_OF(n) (((n) + BLOCK_ROWS - 1) / BLOCK_ROWS)

__device__ inline float infinity() { return as_float(0x7F800000u); }

// Whether query i attends to key j of example n.
__device__ inline bool attends(const A* mask, const A* of_queries, const A* of_pairs, i64 n, int i,
                               int j) {
  return i < QUERIES && j < KEYS && (!CAUSAL || j <= i) &&
         (!WINDOW || (i - j < WINDOW && j - i < WINDOW)) &&
         (mask == 0 || get(mask[n * KEYS + j]) != 0) &&
         (of_queries == 0 || get(of_queries[n * QUERIES + i]) != 0) &&
         (of_pairs == 0 || get(of_pairs[(n * QUERIES + i) * KEYS + j]) != 0);
}
// Whether it attends to any key.
__device__ inline bool attends_to_any(const A* mask, const A* of_queries, const A* of_pairs, i64 n,
                                      int i) {
  bool any = false;
  for (int j = 0; j < KEYS && !any; ++j) any = attends(mask, of_queries, of_pairs, n, i, j);
  return any;
}
// The factor of a probability in dropout.
__device__ inline float kept(Stream stream, i64 n, int h, int i, int j) {
#if DROPS
  const u64 ordinal = stream.first + n;
  const u32x4 words = philox((u32)j / 4, (u32)(h * QUERIES + i), (u32)ordinal,
                             (u32)(ordinal >> 32), stream.key);
  return words.word[j % 4] >= THRESHOLD ? KEPT : 0.0f;
#else
  return 1;
#endif
}

// Copies rows [first, first + count) of a head to shared memory, times `factor`; zeros beyond the last
// row and element.
template <int Size, int Row>
__device__ inline void load_rows(float* to, const A* from, i64 n, int steps, int first, int count,
                                 int heads, int head, float factor) {
  for (int q = threadIdx.x; q < count * Row; q += blockDim.x) {
    const int e = q % Row, t = first + q / Row;
    to[q] = e < Size && t < steps
                ? get(from[((n * steps + t) * heads + head) * Size + e]) * factor
                : 0.0f;
  }
}
template <int Size>
__device__ inline float product(const float* a, const float* b) {
  float sum = 0;
#pragma unroll 8
  for (int e = 0; e < Size; ++e) sum += a[e] * b[e];
  return sum;
}
// sum[w] += the sum over t of the weight of lane t times element LANE + 32 w of row t.
template <int Parts, int Row>
__device__ inline void add_rows(float (&sum)[Parts], float weight, const float* rows) {
#pragma unroll 4
  for (int t = 0; t < TILE; ++t) {
    const float factor = __shfl_sync(0xFFFFFFFFu, weight, t);
#pragma unroll
    for (int w = 0; w < Parts; ++w) sum[w] += factor * rows[t * Row + LANE + 32 * w];
  }
}
template <int Size, int Parts>
__device__ inline void store_row(A* to, const float (&sum)[Parts], float factor) {
#pragma unroll
  for (int w = 0; w < Parts; ++w)
    if (LANE + 32 * w < Size) to[LANE + 32 * w] = put<A>(sum[w] * factor);
}

// The keys that some of the queries [first, first + BLOCK_ROWS) may attend to, from a tile's start.
__device__ inline int first_key(int first) {
  const int begin = WINDOW && first - WINDOW + 1 > 0 ? first - WINDOW + 1 : 0;
  return begin / TILE * TILE;
}
__device__ inline int end_key(int first) {
  int end = KEYS;
  if (CAUSAL) end = min(end, first + BLOCK_ROWS);
  if (WINDOW) end = min(end, first + BLOCK_ROWS - 1 + WINDOW);
  return end;
}

KERNEL(forward)(const A* q, const A* k, const A* v, const A* mask, const A* of_queries, const A* of_pairs, A* o, float* log_sums,
                Stream stream) {
  __shared__ float keys[TILE * KEY_ROW], values[TILE * VALUE_ROW], rows[BLOCK_ROWS * KEY_DIM];
  const int first = (int)(blockIdx.x % TILES_OF(QUERIES)) * BLOCK_ROWS;
  const int h = blockIdx.x / TILES_OF(QUERIES) % HEADS, g = h / (HEADS / KV_HEADS);
  const i64 n = blockIdx.x / TILES_OF(QUERIES) / HEADS;
  load_rows<KEY_DIM, KEY_DIM>(rows, q, n, QUERIES, first, BLOCK_ROWS, HEADS, h, SCALE);
  float most[EACH], sum[EACH], result[EACH][VALUE_PARTS];
  for (int r = 0; r < EACH; ++r) {
    most[r] = -infinity();
    sum[r] = 0;
    for (int w = 0; w < VALUE_PARTS; ++w) result[r][w] = 0;
  }
  for (int tile = first_key(first); tile < end_key(first); tile += TILE) {
    __syncthreads();
    load_rows<KEY_DIM, KEY_ROW>(keys, k, n, KEYS, tile, TILE, KV_HEADS, g, 1);
    load_rows<VALUE_DIM, VALUE_ROW>(values, v, n, KEYS, tile, TILE, KV_HEADS, g, 1);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < EACH; ++r) {
      const int i = first + WARP * EACH + r, j = tile + LANE;
      const bool on = LANE < TILE && attends(mask, of_queries, of_pairs, n, i, j);
      const float score = on ? product<KEY_DIM>(rows + (WARP * EACH + r) * KEY_DIM,
                                                keys + LANE * KEY_ROW)
                             : -infinity();
      const float now = fmaxf(most[r], warp_max(score));
      // Without any key so far all exponentials are 0, but those of NaN.
      const float base = now == -infinity() ? 0.0f : now;
      float p = expf(score - base);
      const float factor = expf(most[r] - base);
      most[r] = now;
      sum[r] = sum[r] * factor + warp_sum(p);
      if (DROPS && on) p *= kept(stream, n, h, i, j);
#pragma unroll
      for (int w = 0; w < VALUE_PARTS; ++w) result[r][w] *= factor;
      add_rows<VALUE_PARTS, VALUE_ROW>(result[r], p, values);
    }
  }
  for (int r = 0; r < EACH; ++r) {
    const int i = first + WARP * EACH + r;
    if (i >= QUERIES) continue;
    // The sum is NaN if a score is, and 0 for scores of -infinity alone, whose softmax is NaN.
    const bool has_keys = !(sum[r] == 0) || attends_to_any(mask, of_queries, of_pairs, n, i);
    store_row<VALUE_DIM>(o + ((n * QUERIES + i) * HEADS + h) * VALUE_DIM, result[r],
                         has_keys ? 1 / sum[r] : 0.0f);
    if (LANE == 0)
      log_sums[(n * HEADS + h) * QUERIES + i] = has_keys ? most[r] + logf(sum[r]) : infinity();
  }
}

// With p = exp(score - log_sum) and the factors f of dropout: d_score = p (f do . v - do . o), and
// dq = scale * sum of d_score k. Writes do . o of each row to `products`.
KERNEL(backward_queries)(const A* q, const A* k, const A* v, const A* mask, const A* of_queries, const A* of_pairs, const A* o,
                         const float* log_sums, const A* d_o, A* dq, float* products,
                         Stream stream) {
  __shared__ float keys[TILE * KEY_ROW], values[TILE * VALUE_ROW], rows[BLOCK_ROWS * KEY_DIM],
      slopes[BLOCK_ROWS * VALUE_DIM];
  const int first = (int)(blockIdx.x % TILES_OF(QUERIES)) * BLOCK_ROWS;
  const int h = blockIdx.x / TILES_OF(QUERIES) % HEADS, g = h / (HEADS / KV_HEADS);
  const i64 n = blockIdx.x / TILES_OF(QUERIES) / HEADS;
  load_rows<KEY_DIM, KEY_DIM>(rows, q, n, QUERIES, first, BLOCK_ROWS, HEADS, h, SCALE);
  load_rows<VALUE_DIM, VALUE_DIM>(slopes, d_o, n, QUERIES, first, BLOCK_ROWS, HEADS, h, 1);
  __syncthreads();
  float log_sum[EACH], along[EACH], result[EACH][KEY_PARTS];
  for (int r = 0; r < EACH; ++r) {
    const int i = first + WARP * EACH + r;
    const i64 row = (n * HEADS + h) * QUERIES + i;
    float part = 0;
    if (i < QUERIES)
      for (int e = LANE; e < VALUE_DIM; e += 32)
        part += slopes[(WARP * EACH + r) * VALUE_DIM + e] *
                get(o[((n * QUERIES + i) * HEADS + h) * VALUE_DIM + e]);
    along[r] = warp_sum(part);
    log_sum[r] = i < QUERIES ? log_sums[row] : infinity();
    if (i < QUERIES && LANE == 0) products[row] = along[r];
    for (int w = 0; w < KEY_PARTS; ++w) result[r][w] = 0;
  }
  for (int tile = first_key(first); tile < end_key(first); tile += TILE) {
    __syncthreads();
    load_rows<KEY_DIM, KEY_ROW>(keys, k, n, KEYS, tile, TILE, KV_HEADS, g, 1);
    load_rows<VALUE_DIM, VALUE_ROW>(values, v, n, KEYS, tile, TILE, KV_HEADS, g, 1);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < EACH; ++r) {
      const int i = first + WARP * EACH + r, j = tile + LANE;
      float d_score = 0;
      if (LANE < TILE && attends(mask, of_queries, of_pairs, n, i, j)) {
        const float* const row = rows + (WARP * EACH + r) * KEY_DIM;
        const float p = expf(product<KEY_DIM>(row, keys + LANE * KEY_ROW) - log_sum[r]);
        const float d_p = product<VALUE_DIM>(slopes + (WARP * EACH + r) * VALUE_DIM,
                                             values + LANE * VALUE_ROW);
        d_score = p * (kept(stream, n, h, i, j) * d_p - along[r]);
      }
      add_rows<KEY_PARTS, KEY_ROW>(result[r], d_score, keys);
    }
  }
  for (int r = 0; r < EACH; ++r) {
    const int i = first + WARP * EACH + r;
    if (i < QUERIES)
      store_row<KEY_DIM>(dq + ((n * QUERIES + i) * HEADS + h) * KEY_DIM, result[r], SCALE);
  }
}

// dv = sum of p f do and dk = scale * sum of d_score q, over the queries of all heads that read this
// head of keys and values.
KERNEL(backward_keys)(const A* q, const A* k, const A* v, const A* mask, const A* of_queries, const A* of_pairs, const float* log_sums,
                      const A* d_o, A* dk, A* dv, const float* products, Stream stream) {
  __shared__ float queries[TILE * KEY_ROW], slopes[TILE * VALUE_ROW], rows[BLOCK_ROWS * KEY_DIM],
      values[BLOCK_ROWS * VALUE_DIM];
  const int first = (int)(blockIdx.x % TILES_OF(KEYS)) * BLOCK_ROWS;
  const int g = blockIdx.x / TILES_OF(KEYS) % KV_HEADS;
  const i64 n = blockIdx.x / TILES_OF(KEYS) / KV_HEADS;
  load_rows<KEY_DIM, KEY_DIM>(rows, k, n, KEYS, first, BLOCK_ROWS, KV_HEADS, g, 1);
  load_rows<VALUE_DIM, VALUE_DIM>(values, v, n, KEYS, first, BLOCK_ROWS, KV_HEADS, g, 1);
  float of_k[EACH][KEY_PARTS], of_v[EACH][VALUE_PARTS];
  for (int r = 0; r < EACH; ++r) {
    for (int w = 0; w < KEY_PARTS; ++w) of_k[r][w] = 0;
    for (int w = 0; w < VALUE_PARTS; ++w) of_v[r][w] = 0;
  }
  // The queries that may attend to the keys [first, first + BLOCK_ROWS).
  int begin = WINDOW && first - WINDOW + 1 > 0 ? first - WINDOW + 1 : 0, end = QUERIES;
  if (CAUSAL) begin = max(begin, first);
  if (WINDOW) end = min(end, first + BLOCK_ROWS - 1 + WINDOW);
  for (int h = g * (HEADS / KV_HEADS); h < (g + 1) * (HEADS / KV_HEADS); ++h)
    for (int tile = begin / TILE * TILE; tile < end; tile += TILE) {
      __syncthreads();
      load_rows<KEY_DIM, KEY_ROW>(queries, q, n, QUERIES, tile, TILE, HEADS, h, SCALE);
      load_rows<VALUE_DIM, VALUE_ROW>(slopes, d_o, n, QUERIES, tile, TILE, HEADS, h, 1);
      __syncthreads();
#pragma unroll
      for (int r = 0; r < EACH; ++r) {
        const int i = tile + LANE, j = first + WARP * EACH + r;
        float p = 0, d_score = 0;
        if (LANE < TILE && attends(mask, of_queries, of_pairs, n, i, j)) {
          const i64 row = (n * HEADS + h) * QUERIES + i;
          p = expf(product<KEY_DIM>(rows + (WARP * EACH + r) * KEY_DIM, queries + LANE * KEY_ROW) -
                   log_sums[row]);
          const float d_p = product<VALUE_DIM>(values + (WARP * EACH + r) * VALUE_DIM,
                                               slopes + LANE * VALUE_ROW);
          const float factor = kept(stream, n, h, i, j);
          d_score = p * (factor * d_p - products[row]);
          p *= factor;
        }
        add_rows<VALUE_PARTS, VALUE_ROW>(of_v[r], p, slopes);
        add_rows<KEY_PARTS, KEY_ROW>(of_k[r], d_score, queries);
      }
    }
  for (int r = 0; r < EACH; ++r) {
    const int j = first + WARP * EACH + r;
    if (j >= KEYS) continue;
    store_row<KEY_DIM>(dk + ((n * KEYS + j) * KV_HEADS + g) * KEY_DIM, of_k[r], 1);
    store_row<VALUE_DIM>(dv + ((n * KEYS + j) * KV_HEADS + g) * VALUE_DIM, of_v[r], 1);
  }
}
)cuda"};

/// Rotary positions: a thread turns one pair of elements. `to` may be `from`.
inline constexpr Source rotation_source{"rotation", R"cuda(
KERNEL(turn)(const A* from, A* to, i64 heads, int steps, float direction) {
  const int pairs = KEY_DIM / 2;
  for (i64 q = INDEX; q < heads * pairs; q += STRIDE) {
    const int pair = (int)(q % pairs), step = (int)(q / pairs / HEADS % steps);
    const double angle =
        step / (double)SCALING * pow((double)WAVELENGTH, -2.0 * pair / KEY_DIM);
    const float c = (float)cos(angle), s = direction * (float)sin(angle);
    const i64 first = q / pairs * KEY_DIM + (PAIRS ? 2 * pair : pair);
    const i64 second = first + (PAIRS ? 1 : pairs);
    const float x = get(from[first]), y = get(from[second]);
    to[first] = put<A>(x * c - y * s);
    to[second] = put<A>(y * c + x * s);
  }
}
)cuda"};

/// How the work of one op is cut, so that a block's tiles fit into 48 KiB of shared memory.
struct AttentionTiles {
  std::size_t warps = 8, each = 4, tile = 32;

  explicit AttentionTiles(const DotProductAttentionOp& op) {
    while (bytes(op) > 48 * 1024 && tile > 1) {
      if (each > 1)
        each = 1;
      else if (tile > 8)
        tile /= 2;
      else if (warps > 1)
        warps /= 2;
      else
        tile /= 2;
    }
  }
  /// Blocks for `steps` rows of each of `heads` heads.
  std::size_t blocks(int steps, int heads, std::size_t count) const {
    const std::size_t rows = warps * each;
    return count * static_cast<std::size_t>(heads) *
           ((static_cast<std::size_t>(steps) + rows - 1) / rows);
  }

 private:
  std::size_t bytes(const DotProductAttentionOp& op) const {
    const auto k = static_cast<std::size_t>(op.key_dim), v = static_cast<std::size_t>(op.value_dim);
    const std::size_t k_row = (k + 31) / 32 * 32 + 1, v_row = (v + 31) / 32 * 32 + 1;
    return (tile * (k_row + v_row) + warps * each * (k + v)) * sizeof(float);
  }
};

/// The launches of one DotProductAttentionOp.
template <class Precision>
class AttentionCalls {
 public:
  using D = BasicCuda<Precision>;
  using A = ActivationOf<D>;
  using Op = DotProductAttentionOp;
  using Operands = AttentionIo<D>;

  AttentionCalls(const Op& op, std::size_t count) : tiles_(op) {
    const auto add = [this](std::size_t bytes) {
      const std::size_t offset = bytes_;
      bytes_ += (bytes + 255) / 256 * 256;
      return offset;
    };
    products_ = add(count * op.rows() * sizeof(float));
    if (!op.rules.rotary.on()) return;
    q_ = add(count * op.q_size() * sizeof(A));
    k_ = add(count * op.k_size() * sizeof(A));
  }
  std::size_t scratch_bytes() const { return bytes_; }

  void forward(const Op& op, const Operands& io) const {
    if (io.step.count == 0) return;
    const auto [q, k] = turned(op, io);
    io.device.launch(kernel(op, io, "forward"), grid(op.queries, op.heads, io), q, k, io.v, io.mask,
                     io.query_mask, io.pair_mask, io.o, io.log_sums, stream_of(io));
  }
  void backward(const Op& op, const Operands& io) const {
    if (io.step.count == 0) return;
    const auto [q, k] = turned(op, io);
    float* const products = reinterpret_cast<float*>(io.scratch + products_);
    io.device.launch(kernel(op, io, "backward_queries"), grid(op.queries, op.heads, io), q, k, io.v,
                     io.mask, io.query_mask, io.pair_mask, static_cast<const A*>(io.o), io.log_sums,
                     io.d_o, io.dq, products, stream_of(io));
    io.device.launch(kernel(op, io, "backward_keys"), grid(op.keys, op.kv_heads, io), q, k, io.v,
                     io.mask, io.query_mask, io.pair_mask, io.log_sums, io.d_o, io.dk, io.dv,
                     products, stream_of(io));
    if (!op.rules.rotary.on()) return;
    turn(op, io, io.dq, io.dq, op.queries, op.heads, -1);
    turn(op, io, io.dk, io.dk, op.keys, op.kv_heads, -1);
  }

 private:
  struct Turned {
    const A *q, *k;
  };
  /// q and k, or rotated copies in scratch.
  Turned turned(const Op& op, const Operands& io) const {
    if (!op.rules.rotary.on()) return {io.q, io.k};
    A* const q = reinterpret_cast<A*>(io.scratch + q_);
    A* const k = reinterpret_cast<A*>(io.scratch + k_);
    turn(op, io, io.q, q, op.queries, op.heads, 1);
    turn(op, io, io.k, k, op.keys, op.kv_heads, 1);
    return {q, k};
  }
  void turn(const Op& op, const Operands& io, const A* from, A* to, int steps, int heads,
            float direction) const {
    const Rotary& rule = op.rules.rotary;
    const auto defines = with_activation<Precision>(
        std::array{Define("KEY_DIM", op.key_dim), Define("HEADS", heads),
                   Define("WAVELENGTH", rule.max_wavelength),
                   Define("SCALING", rule.scaling_factor), Define("PAIRS", rule.pairs)});
    const std::size_t all =
        io.step.count * static_cast<std::size_t>(steps) * static_cast<std::size_t>(heads);
    io.device.launch(io.device.kernel(rotation_source, "turn", defines),
                     Grid::over(all * static_cast<std::size_t>(op.key_dim / 2)), from, to,
                     static_cast<std::int64_t>(all), steps, direction);
  }

  Grid grid(int steps, int heads, const Operands& io) const {
    return {{static_cast<unsigned>(tiles_.blocks(steps, heads, io.step.count)), 1, 1},
            {static_cast<unsigned>(32 * tiles_.warps), 1, 1}};
  }
  CUfunction kernel(const Op& op, const Operands& io, const char* entry) const {
    const float rate = op.rules.dropout;
    const bool drops = io.step.training && rate > 0;
    const auto threshold =
        static_cast<std::uint32_t>(std::ceil(static_cast<double>(rate) * 0x1p32));
    const auto defines = with_activation<Precision>(std::array{
        Define("QUERIES", op.queries), Define("KEYS", op.keys), Define("HEADS", op.heads),
        Define("KV_HEADS", op.kv_heads), Define("KEY_DIM", op.key_dim),
        Define("VALUE_DIM", op.value_dim), Define("CAUSAL", op.rules.causal),
        Define("WINDOW", op.rules.window),
        Define("SCALE", 1.0f / std::sqrt(static_cast<float>(op.key_dim))),
        Define("WARPS", tiles_.warps), Define("EACH", tiles_.each), Define("TILE", tiles_.tile),
        Define("DROPS", drops), Define("THRESHOLD", threshold), Define("KEPT", 1 / (1 - rate))});
    return io.device.kernel(dot_product_attention_source, entry, defines);
  }

  AttentionTiles tiles_;
  std::size_t bytes_ = 0, products_ = 0, q_ = 0, k_ = 0;  // offsets in scratch
};

}  // namespace detail::cuda

template <class Precision>
struct Kernel<DotProductAttentionOp, BasicCuda<Precision>> {
  using library_kernel = Kernel;
  using D = BasicCuda<Precision>;
  using Op = DotProductAttentionOp;
  using Prepared = detail::cuda::AttentionCalls<Precision>;

  template <std::same_as<ForwardOnly>... Only>
  static Prepared prepare(const Op& op, typename D::Context&, std::size_t count, Only...) {
    return Prepared(op, count);
  }
  static void forward(const Op& op, const AttentionIo<D>& io, Prepared& p) { p.forward(op, io); }
  static void backward(const Op& op, const AttentionIo<D>& io, Prepared& p) { p.backward(op, io); }
};

static_assert(HasKernel<DotProductAttentionOp, Cuda>);

}  // namespace lockstep
