/// \file
/// The options of ls::wire: what travels between replicas instead of whole gradients. Invariant: plain
/// values; one type has those of all formats, so that a program can choose at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/core/config.hpp"

namespace lockstep {

namespace detail {
template <class D>
class CompressedUpdate;
}  // namespace detail

/// Formats in which replicas exchange gradients; written `strategy | format`. All replicas get the same
/// bits, those of the sums of what was sent.
namespace wire {

/// Gradients travel whole, but gradient accumulation exchanges them once per update instead of once
/// per step.
struct Uncompressed {};

/// Gradients travel as bfloat16: half of the bytes of float. A replica's gradients are its part of
/// the mean, that is, divided before the sum, so that many replicas do not overflow. The owner of an
/// element adds in float and rounds the sum once. Nothing is kept of what rounding loses.
///
///     g = bfloat16(sum over replicas of bfloat16(g_i))
///
/// Source: PyTorch's `bf16_compress_hook`. Horovod: `Compression.fp16`.
struct bfloat16 {};

/// A replica sends the elements of each parameter's gradient that are largest in magnitude, as pairs of
/// index and value, and adds the others to its next gradient:
///
///     a_i = g_i + e_i                          e_i: what this replica has kept
///     s_i = the k largest elements of a_i      sent to all
///     e_i = a_i - s_i
///     g   = s_0 + s_1 + ...                    in the order of ranks
///
/// With n elements k is `count`, or `fraction` n, rounded, if `count` is 0; at least 1 and at most n. In
/// the first `warm_up` updates more elements travel: n (k / n)^(u / warm_up) in update u, counted from 0.
/// Source: Y. Lin et al., Deep Gradient Compression, 2018, without its momentum correction and factor
/// masking.
struct TopK {
  double fraction = 0.01;
  std::size_t count = 0;      ///< per parameter; instead of `fraction`
  std::uint64_t warm_up = 0;  ///< updates; all elements travel in the first one
};
/// The same as a constant: `top_k<100>` has that count, and `top_k<0.01>` that fraction, for compilers
/// whose templates have such arguments (clang 18, g++).
template <auto amount>
  requires(amount > 0)
inline constexpr TopK top_k = [] {
  if constexpr (std::is_integral_v<decltype(amount)>)
    return TopK{.count = static_cast<std::size_t>(amount)};
  else
    return TopK{.fraction = amount};
}();

/// Replicas send two thin factors of each matrix' sum, of rank r, and add what these miss to their next
/// gradients:
///
///     A_i = G_i + E_i                           (rows, columns); E_i: what this replica has kept
///     P   = orthonormal(sum of A_i^T Q)         (columns, r); all-reduced
///     Q   = sum of A_i P                        (rows, r); all-reduced, and the next step's Q
///     G   = Q P^T
///     E_i = A_i - G / replicas
///
/// A parameter is compressed if (rows + columns) r min_compression_rate < rows columns, where columns
/// are its last extent, and r is `rank` or less if it has fewer rows or columns. Others, and biases,
/// travel whole, as all gradients do before update `start`, counted from 0. The first Q is random, the
/// same in all replicas. A column without a direction becomes 0.
///
/// Source: T. Vogels et al., PowerSGD, 2019, as PyTorch's `powerSGD_hook` has it, with its defaults;
/// PyTorch's first extent is that of the outputs, here columns.
struct PowerSgd {
  std::size_t rank = 1;
  std::uint64_t start = 1000;
  double min_compression_rate = 2;
  std::uint64_t seed = 0;
};

/// The update policy ls::Replicated with one of these formats, which may be chosen at run time:
/// `strategy | format` is an UpdatedBy<S, wire::Format>.
/// \throws UsageError when a model is made, if an option is out of range.
/// \code
///   #include <lockstep/wire.hpp>
///   ls::Mirrored<ls::Cpu>{.replicas = 2} | ls::wire::bfloat16{}
///   ls::MultiWorkerMirrored<ls::Cpu>{} | ls::wire::PowerSgd{.rank = 2}
///   ls::wire::Format format = ls::wire::TopK{.fraction = 0.05};
///   ls::MultiWorkerMirrored<ls::Cpu>{} | format
/// \endcode
struct Format {
  enum class Kind : std::uint8_t { uncompressed, bfloat16, top_k, power_sgd };

  constexpr Format(Uncompressed = {}) {}
  constexpr Format(bfloat16) : kind(Kind::bfloat16) {}
  constexpr Format(const TopK& options) : kind(Kind::top_k), top_k(options) {}
  constexpr Format(const PowerSgd& options) : kind(Kind::power_sgd), power_sgd(options) {}

  template <class D>
  using Replica = detail::CompressedUpdate<D>;
  static constexpr std::string_view name = "wire";
  /// Results depend on the number of replicas, so that virtual shards cannot keep their bits.
  static constexpr bool depends_on_replicas = true;

  /// The format with its options, which all processes of a job compare: "wire power_sgd of rank 2,
  /// ...".
  LOCKSTEP_COLD_DECL std::string text() const;
  /// \throws UsageError.
  LOCKSTEP_COLD_DECL void check() const;

  Kind kind = Kind::uncompressed;
  TopK top_k{};          ///< used by its kind only
  PowerSgd power_sgd{};  ///< the same
};

}  // namespace wire
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/step/wire_format.ipp"
#endif
