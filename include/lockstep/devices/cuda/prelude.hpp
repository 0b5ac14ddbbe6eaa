/// \file
/// The prelude of every kernel text. Invariants: it includes no header, so NVRTC needs none; it is
/// C++ that a host compiler accepts too (tests/support/host_gpu.hpp defines the CUDA keywords and
/// runs the grid in loops), so the arithmetic of every kernel is tested without a GPU.
#pragma once

namespace lockstep::detail::cuda {

/// The functions and macros available to a text:
///
/// - `KERNEL(name)(arguments) {...}`: an entry point; arguments are pointers and numbers. A define
///   THREADS bounds the block size, and with it the registers per thread.
/// - `A`: the type of activations and their gradients, selected by the define ACTIVATION (0 float,
///   1 bfloat16, 2 float16). `get(a)` converts to float, `put<A>(x)` rounds to A. Weights are
///   float.
/// - `INDEX`, `STRIDE`: this thread's index in a one-dimensional grid, and the number of threads:
///   `for (i64 i = INDEX; i < n; i += STRIDE)`, or `FOR_EACH(i, n)` with a grid of Grid::over.
/// - `Four`: four activations, loaded or stored at once.
/// - `Target`: an element of the targets of a loss or metric: int with the define LABELS, else
///   float. `is_ignored(t)`: whether it is the label IGNORED, with the define IGNORES.
/// - `P_AT(i)`, `T_AT(i)`, `W_AT(i)`: the place of element i of the predictions, targets and sample
///   weights, which with the define PLACED are parts of longer rows; `Given`: an element of the targets
///   there. `TargetsAt<n> target(t, i)`: n targets from the i-th on, for a function of `Target`.
/// - `block_sum(x)`: the sum over the block, bitwise reproducible. All threads must call it and all
///   get the result. Blocks consist of whole warps.
/// - `warp_max(x)`: the maximum over the warp, ignoring NaN. `warp_argmax(v, n, lane)`: the index
///   of the largest of n numbers; ties go to the lower index.
/// - `range_at(ranges, count, i)`: the last range that begins at or before i; see
///   buffer_ranges.hpp.
/// - `last_to_arrive(workspace, blocks)`: whether this block is the last of `blocks` to arrive; see
///   sums.hpp.
/// - `grid_sum(x, workspace)`: sums over all threads of the grid; see sums.hpp.
/// - `philox(counter, key)`: lockstep::philox4x32. `block_of_words(stream, n, i)`: words 4 i to 4 i
///   + 3 of example n; `Draws(stream, n)` yields them in the order of lockstep::Philox.
inline constexpr char prelude[] = R"cuda(
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef KERNEL
#ifdef THREADS
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(THREADS, 1) name
#else
#define KERNEL(name) extern "C" __global__ void name
#endif
#endif
#define INDEX ((i64)blockIdx.x * blockDim.x + threadIdx.x)
#define STRIDE ((i64)gridDim.x * blockDim.x)
// Not unrolled: most threads of Grid::over have one element, and unrolling would count the
// iterations first, which takes a division.
#define FOR_EACH(i, n) _Pragma("unroll 1") for (i64 i = INDEX; i < (n); i += STRIDE)

#ifndef ACTIVATION
#define ACTIVATION 0
#endif

struct bf16 {
  unsigned short bits;
};
struct fp16 {
  unsigned short bits;
};

__device__ inline float as_float(u32 bits) {
  union {
    u32 bits;
    float value;
  } both;
  both.bits = bits;
  return both.value;
}
__device__ inline u32 as_bits(float value) {
  union {
    u32 bits;
    float value;
  } both;
  both.value = value;
  return both.bits;
}

__device__ inline float get(float x) { return x; }
__device__ inline float get(bf16 x) { return as_float((u32)x.bits << 16); }
template <class To>
__device__ To put(float x);
template <>
__device__ inline float put<float>(float x) {
  return x;
}

// put rounds to nearest, ties to even, and preserves NaN. On a GPU both conversions are cvt
// instructions, which turn every NaN into 0x7FFF or 0x7FFFFFFF; the integer code keeps a NaN's sign
// and, for bf16, its payload. The fp16 conversions come from libdevice rather than inline asm,
// because the compiler treats asm as convergent: it does not unroll a loop with asm and an unknown
// trip count, or it keeps the exits between iterations, so that each load waits for the previous
// one. For bf16 there is only asm; a thread with many elements unrolls by hand, as few_rows in
// columns.hpp does.
#ifdef __CUDA_ARCH__
extern "C" __device__ float __nv_half2float(unsigned short);
extern "C" __device__ unsigned short __nv_float2half_rn(float);
__device__ inline float get(fp16 x) { return __nv_half2float(x.bits); }
template <>
__device__ inline fp16 put<fp16>(float x) {
  fp16 y;
  y.bits = __nv_float2half_rn(x);
  return y;
}
#else
__device__ inline float get(fp16 x) {
  const u32 sign = (u32)(x.bits & 0x8000) << 16, exponent = x.bits >> 10 & 31;
  const u32 fraction = x.bits & 0x3FF;
  if (exponent == 31) return as_float(sign | 0x7F800000u | fraction << 13);
  if (exponent == 0) {
    const float small = (float)fraction * 5.9604644775390625e-8f;  // 2^-24
    return sign ? -small : small;
  }
  return as_float(sign | (exponent + 112) << 23 | fraction << 13);
}
template <>
__device__ inline fp16 put<fp16>(float x) {
  const u32 whole = as_bits(x), sign = whole >> 16 & 0x8000, size = whole & 0x7FFFFFFF;
  fp16 y;
  if (size > 0x7F800000u) {
    y.bits = (unsigned short)(sign | 0x7E00);
  } else if (size >= 0x477FF000u) {  // 65520 and above overflow to infinity
    y.bits = (unsigned short)(sign | 0x7C00);
  } else if (size < 0x38800000u) {  // below 2^-14: after adding 0.5 the last bit is worth 2^-24
    y.bits = (unsigned short)(sign | (as_bits(as_float(size) + 0.5f) - 0x3F000000u));
  } else {
    y.bits = (unsigned short)(sign | (size - 0x38000000u + 0xFFF + (size >> 13 & 1)) >> 13);
  }
  return y;
}
#endif
#if __CUDA_ARCH__ >= 800
template <>
__device__ inline bf16 put<bf16>(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
#else
template <>
__device__ inline bf16 put<bf16>(float x) {
  const u32 whole = as_bits(x);
  bf16 y;
  y.bits = x != x ? (unsigned short)(whole >> 16 | 0x40)
                  : (unsigned short)((whole + 0x7FFF + (whole >> 16 & 1)) >> 16);
  return y;
}
#endif

#if ACTIVATION == 1
typedef bf16 A;
#elif ACTIVATION == 2
typedef fp16 A;
#else
typedef float A;
#endif
// Loaded or stored with one instruction; its address is a multiple of its size.
struct __align__(4 * sizeof(A)) Four {
  A at[4];
};

// Targets of a loss or metric.
#if LABELS
typedef int Target;
#else
typedef float Target;
#endif
#ifdef PLACED
// Of one of several outputs: an example has a part of each of three rows, PITCH elements apart. Labels
// are whole numbers in float.
typedef float Given;
#define P_AT(i) ((i) / P_EACH * P_PITCH + (i) % P_EACH)
#define T_AT(i) ((i) / T_EACH * T_PITCH + (i) % T_EACH)
#define W_AT(i) ((i) / W_EACH * W_PITCH + (i) % W_EACH)
#else
typedef Target Given;
#define P_AT(i) (i)
#define T_AT(i) (i)
#define W_AT(i) (i)
#endif
template <int N>
struct TargetsAt {
#if defined(PLACED) && LABELS
  Target at[N];
  __device__ TargetsAt(const Given* t, i64 i) {
    for (int k = 0; k < N; ++k) at[k] = (Target)t[T_AT(i) + k];
  }
#else
  const Target* at;
  __device__ TargetsAt(const Given* t, i64 i) : at(t + T_AT(i)) {}
#endif
  __device__ operator const Target*() const { return at; }
};
__device__ inline bool is_ignored(const Target* t) {
#if LABELS && IGNORES
  return *t == IGNORED;
#else
  return false;
#endif
}
#ifdef SIZE
// The gradient of a row with an ignored label.
__device__ inline void clear_row(float* g, int lane) {
  for (int k = lane; k < SIZE; k += 32) g[k] = 0;
}
#endif

template <class T>
__device__ inline T warp_sum(T x) {
  for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xFFFFFFFFu, x, d);
  return x;
}

template <class T>
__device__ inline T block_sum(T x) {
  __shared__ T part[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  x = warp_sum(x);
  __syncthreads();
  if (lane == 0) part[warp] = x;
  __syncthreads();
  T sum = part[0];
  for (int w = 1; w < warps; ++w) sum += part[w];
  return sum;
}

__device__ inline float warp_max(float x) {
  for (int d = 16; d > 0; d >>= 1) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, d));
  return x;
}

// The result is in all lanes. A NaN counts as the largest if it comes first, otherwise never.
__device__ inline int warp_argmax(const float* v, int n, int lane) {
  float best = v[0];
  int place = 0;
  for (int k = lane; k < n; k += 32)
    if (v[k] > best) {
      best = v[k];
      place = k;
    }
  for (int d = 16; d > 0; d >>= 1) {
    const float other = __shfl_xor_sync(0xFFFFFFFFu, best, d);
    const int there = __shfl_xor_sync(0xFFFFFFFFu, place, d);
    if (other > best || (other == best && there < place)) {
      best = other;
      place = there;
    }
  }
  return place;
}

// Workspace of grid-wide sums; the layout of SumWorkspace in sums.hpp.
struct Sums {
  u32 arrived[1024];
  double total[4];
  double part[1];
};

// Increments the counter and returns its previous value.
__device__ inline u32 count_up(u32* counter) {
#ifdef __CUDA_ARCH__
  u32 before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(counter))
               : "memory");
  return before;
#else
  return (*counter)++;
#endif
}

// Returns true in all threads of the block that is the last of `blocks` to arrive in `group` (below
// 1024), and false in the others. The last block sees all writes that the others made before the
// call. Every block calls it once, from all of its threads.
//
// One thread's atomic and plain loads suffice, because causality order is transitive (PTX, memory
// consistency model). The first barrier orders the block's writes before the atomic, acq_rel orders
// each block before those that count later, and the second barrier orders the last block's loads
// after the atomic. Memory read by ld.global.nc (const and __restrict__) is not covered.
__device__ inline bool last_to_arrive(Sums* workspace, u32 blocks, u32 group = 0) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    last = count_up(&workspace->arrived[group]) == blocks - 1;
    if (last) workspace->arrived[group] = 0;
  }
  __syncthreads();
  return last;
}

// Returns true in all threads of the last block to arrive; x is then the sum over all threads of
// the grid. Bitwise reproducible: each block sums its threads, then the last one sums the blocks.
template <int N>
__device__ inline bool grid_sum(double (&x)[N], Sums* workspace) {
  for (int k = 0; k < N; ++k) x[k] = block_sum(x[k]);
  if (gridDim.x == 1) return true;
  if (threadIdx.x == 0)
    for (int k = 0; k < N; ++k) workspace->part[k * gridDim.x + blockIdx.x] = x[k];
  if (!last_to_arrive(workspace, gridDim.x)) return false;
  for (int k = 0; k < N; ++k) {
    const double* part = workspace->part + k * gridDim.x;
    x[k] = 0;
    for (u32 b = threadIdx.x; b < gridDim.x; b += blockDim.x) x[k] += part[b];
    x[k] = block_sum(x[k]);
  }
  return true;
}

// Binary search for the last range that begins at or before i; the first range if none does.
template <class Range>
__device__ inline int range_at(const Range* ranges, int count, i64 i) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (ranges[middle].begin <= i)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

struct u32x4 {
  u32 word[4];
};

__device__ inline u32x4 philox(u32 c0, u32 c1, u32 c2, u32 c3, u64 key) {
  u32 k0 = (u32)key, k1 = (u32)(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const u64 a = (u64)0xD2511F53u * c0, b = (u64)0xCD9E8D57u * c2;
    c0 = (u32)(b >> 32) ^ c1 ^ k0;
    c1 = (u32)b;
    c2 = (u32)(a >> 32) ^ c3 ^ k1;
    c3 = (u32)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  u32x4 out;
  out.word[0] = c0;
  out.word[1] = c1;
  out.word[2] = c2;
  out.word[3] = c3;
  return out;
}

// The random stream of the batch's examples: see support/philox.hpp.
struct Stream {
  u64 key, first;
};
__device__ inline u32x4 block_of_words(Stream stream, i64 n, u32 block) {
  const u64 ordinal = stream.first + n;
  return philox(block, 0, (u32)ordinal, (u32)(ordinal >> 32), stream.key);
}

struct Draws {
  Stream stream;
  i64 n;
  u32 drawn;
  u32x4 words;
  __device__ Draws(Stream s, i64 example) : stream(s), n(example), drawn(0) {}
  __device__ u32 next() {
    const u32 lane = drawn % 4;
    if (lane == 0) words = block_of_words(stream, n, drawn / 4);
    ++drawn;
    return lane == 0 ? words.word[0] : lane == 1 ? words.word[1]
         : lane == 2 ? words.word[2] : words.word[3];
  }
  // Uniform in [0, 1), with 53 bits.
  __device__ double uniform() {
    const u64 high = next(), low = next();
    return (double)(high << 21 ^ low >> 11) * 1.1102230246251565404e-16;  // 2^-53
  }
  // Uniform in [0, most), without bias (Lemire's rejection method).
  __device__ u32 below(u32 most) {
    u64 product = (u64)next() * most;
    if ((u32)product < most) {
      const u32 threshold = (0u - most) % most;
      while ((u32)product < threshold) product = (u64)next() * most;
    }
    return (u32)(product >> 32);
  }
};

__device__ inline u64 mix(u64 a, u64 b) {
  u64 z = a + 0x9E3779B97F4A7C15ull * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
)cuda";

}  // namespace lockstep::detail::cuda
