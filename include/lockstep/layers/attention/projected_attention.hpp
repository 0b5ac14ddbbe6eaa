/// \file
/// An attention layer as four products and the attention between them. Invariant: the op has no
/// kernel of a device; those of Dense and DotProductAttentionOp do the work.
///
///     query --> q --+
///     key   --> k --+--> o --attention_output--> y           saved: q, k, v, o, log_sums
///     value --> v --+
///
/// The saved memory grows linearly with the number of steps. In generation keys and values are written
/// to a cache in `once`, after those of the steps before (cached_attention.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/layers/affine.hpp"
#include "lockstep/layers/attention/dot_product_attention.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/layers/inner_kernel.hpp"

namespace lockstep {

/// The operands of an attention layer in Keras' order: (query), (query, value) or (query, value, key).
/// An operand that is left out is the one before it. Masks are operands after them: the layer's
/// `attention_mask`, then those of padded steps.
struct AttentionSources {
  static constexpr std::string_view members =
      ".operands .value .key .query_mask .key_mask ?attention_mask";
  int operands = 1;
  Shape value{}, key{};                      ///< (steps, features) of the operands after the query
  std::size_t query_mask = 0, key_mask = 0;  ///< operands; 0: none
  int attention_mask = 1;                    ///< number of the operand, from 1; 1: none

  constexpr std::size_t value_operand() const { return operands > 1 ? 1 : 0; }
  constexpr std::size_t key_operand() const { return static_cast<std::size_t>(operands - 1); }
  constexpr std::size_t mask_operand() const {
    return static_cast<std::size_t>(attention_mask - 1);
  }
  constexpr Shape value_of(Shape query) const { return operands > 1 ? value : query; }
  constexpr Shape key_of(Shape query) const { return operands > 2 ? key : value_of(query); }
  bool operator==(const AttentionSources&) const = default;
};

namespace detail {

/// The products of an attention layer over (steps, features), whose weights follow each other in
/// this order.
struct AttentionProducts {
  DenseOp query, key, value, output;
  constexpr std::size_t weights() const {
    return query.weights() + key.weights() + value.weights() + output.weights();
  }
  constexpr double flops() const {
    return query.flops() + key.flops() + value.flops() + output.flops();
  }
};
constexpr AttentionProducts attention_products(Shape query, const AttentionSources& sources,
                                               const DotProductAttentionOp& a, int outputs,
                                               bool bias) {
  const Shape queries = shape(a.queries), keys = shape(a.keys);
  return {{query[1], a.heads * a.key_dim, bias, queries},
          {sources.key_of(query)[1], a.kv_heads * a.key_dim, bias, keys},
          {sources.value_of(query)[1], a.kv_heads * a.value_dim, bias, keys},
          {a.heads * a.value_dim, outputs, bias, queries}};
}

/// An op between the products whose keys and values are cached: `context` steps of `key_size()` and
/// `value_size()` elements.
template <class O>
concept CachesKeys = requires(const O& op) {
  op.context();
  op.key_size();
  op.value_size();
};

/// An op of four products and an attention between them, over its operands `sources`.
template <class Op>
concept ProjectsAttention = requires(const Op& op) {
  { op.products() } -> std::same_as<AttentionProducts>;
  op.attention();
  { op.sources } -> std::convertible_to<AttentionSources>;
};
/// The op between the products.
template <class Op>
using AttentionOf = std::remove_cvref_t<decltype(std::declval<const Op&>().attention())>;

/// The kernel of such an op.
template <ProjectsAttention Op, class D>
struct ProjectedAttention : KernelTraits {
  using T = typename D::real;
  using A = ActivationOf<D>;
  using Product = Kernel<DenseOp, D>;
  using CoreOp = AttentionOf<Op>;
  using Core = Kernel<CoreOp, D>;
  static_assert(Product::saved(DenseOp{}) == 0 && Product::keeps_x && !Product::keeps_y);
  static constexpr bool keeps_x = true, skips_dw = Product::skips_dw, updates = Product::updates;

  static constexpr std::size_t saved(const Op& op) {
    const CoreOp a = op.attention();
    return lines(a.rows() * sizeof(T)) + lines(a.q_size() * sizeof(A)) +
           lines(a.k_size() * sizeof(A)) + lines(a.v_size() * sizeof(A)) +
           lines(a.o_size() * sizeof(A));
  }

  static constexpr std::size_t saved_once(const Op& op) {
    return once(op.products()) + key_cache(op.attention()) + value_cache(op.attention());
  }

  struct Prepared {
    InnerKernel<DenseOp, D> query, key, value, output;
    typename Core::Prepared core;
    std::size_t inner_bytes = 0;  // scratch of the kernels
    // Gradients, in scratch: of o, later a part of dx; of q, k and v.
    std::size_t d_o = 0, dq = 0, dk = 0, dv = 0, bytes = 0;
    std::size_t scratch_bytes() const { return bytes; }
  };
  template <std::same_as<ForwardOnly>... Only>
  static Prepared prepare(const Op& op, typename D::Context& context, std::size_t count,
                          Only... only) {
    const AttentionProducts products = op.products();
    const CoreOp a = op.attention();
    Prepared p{{products.query, context, count, only...},
               {products.key, context, count, only...},
               {products.value, context, count, only...},
               {products.output, context, count, only...},
               Core::prepare(a, context, count, only...)};
    for (const std::size_t bytes :
         {p.query.scratch_bytes(), p.key.scratch_bytes(), p.value.scratch_bytes(),
          p.output.scratch_bytes(), p.core.scratch_bytes()})
      p.inner_bytes = std::max(p.inner_bytes, lines(bytes));
    p.bytes = p.inner_bytes;
    if constexpr (sizeof...(Only) == 0) {
      const auto add = [&](std::size_t size) {
        const std::size_t offset = p.bytes;
        p.bytes += lines(count * size * sizeof(A));
        return offset;
      };
      p.d_o = add(std::max({a.o_size(), op.in.size(), op.sources.value_of(op.in).size(),
                            op.sources.key_of(op.in).size()}));
      p.dq = add(a.q_size());
      p.dk = add(a.k_size());
      p.dv = add(a.v_size());
    }
    return p;
  }

  static void forward(const Op& op, const Io<D>& io, Prepared& p) {
    const AttentionProducts products = op.products();
    const Values values(op, io);
    const Places at(products);
    multiply(p.query, products.query, io, at.query, io.x[0], values.q);
    multiply(p.key, products.key, io, at.key, io.x[op.sources.key_operand()], values.k);
    multiply(p.value, products.value, io, at.value, io.x[op.sources.value_operand()], values.v);
    Core::forward(op.attention(), core_io(op, io, values), p.core);
    multiply(p.output, products.output, io, at.output, values.o, io.y);
  }

  static void backward(const Op& op, const Io<D>& io, Prepared& p) {
    const AttentionProducts products = op.products();
    const Values values(op, io);
    const Places at(products);
    A* const part = in_scratch(io, p.d_o);
    differentiate(p.output, products.output, io, at.output, values.o, io.dy, part);
    AttentionIo<D> core = core_io(op, io, values);
    core.d_o = part;
    core.dq = in_scratch(io, p.dq);
    core.dk = in_scratch(io, p.dk);
    core.dv = in_scratch(io, p.dv);
    Core::backward(op.attention(), core, p.core);
    // The first product of an operand writes its gradient, the others add to it.
    std::array<bool, 3> written{};
    const auto differentiate_operand = [&](std::size_t i, InnerKernel<DenseOp, D>& kernel,
                                           const DenseOp& product, const Place& place, A* dy) {
      A* const dx = io.dx[i];
      const bool adds = dx != nullptr && written[i];
      differentiate(kernel, product, io, place, io.x[i], dy, adds ? part : dx);
      if (adds)
        io.device.add(dx, part,
                      io.step.count * product.rows() * static_cast<std::size_t>(product.inputs));
      written[i] = true;
    };
    differentiate_operand(0, p.query, products.query, at.query, core.dq);
    differentiate_operand(op.sources.key_operand(), p.key, products.key, at.key, core.dk);
    differentiate_operand(op.sources.value_operand(), p.value, products.value, at.value, core.dv);
  }

 private:
  /// Rounded up to whole cache lines.
  static constexpr std::size_t lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

  /// The values that forward saves.
  struct Values {
    T* log_sums;
    A *q, *k, *v, *o;
    Values(const Op& op, const Io<D>& io) {
      const CoreOp a = op.attention();
      std::byte* at = io.saved;
      const auto next = [&]<class E>(E*& to, std::size_t size) {
        to = reinterpret_cast<E*>(at);
        at += io.step.count * lines(size * sizeof(E));
      };
      next(log_sums, a.rows());
      next(q, a.q_size());
      next(k, a.k_size());
      next(v, a.v_size());
      next(o, a.o_size());
      if constexpr (CachesKeys<CoreOp>) {
        std::byte* const cache = io.once + once(op.products());
        k = reinterpret_cast<A*>(cache) + io.step.first_ordinal * a.key_size();
        v = reinterpret_cast<A*>(cache + key_cache(a)) + io.step.first_ordinal * a.value_size();
      }
    }
  };
  static constexpr std::size_t once(const DenseOp& op) { return lines(Product::saved_once(op)); }
  static constexpr std::size_t once(const AttentionProducts& p) {
    return once(p.query) + once(p.key) + once(p.value) + once(p.output);
  }
  /// Bytes of the caches; 0 without one.
  static constexpr std::size_t key_cache([[maybe_unused]] const CoreOp& a) {
    if constexpr (CachesKeys<CoreOp>)
      return lines(a.context() * a.key_size() * sizeof(A));
    else
      return 0;
  }
  static constexpr std::size_t value_cache([[maybe_unused]] const CoreOp& a) {
    if constexpr (CachesKeys<CoreOp>)
      return lines(a.context() * a.value_size() * sizeof(A));
    else
      return 0;
  }
  /// Where a product's weights and what it saves once begin.
  struct Place {
    std::size_t weights = 0, once = 0;
    constexpr Place after(const DenseOp& op) const {
      return {weights + op.weights(), once + ProjectedAttention::once(op)};
    }
  };
  struct Places {
    Place query, key, value, output;
    explicit Places(const AttentionProducts& p)
        : key(query.after(p.query)), value(key.after(p.key)), output(value.after(p.value)) {}
  };

  static A* in_scratch(const Io<D>& io, std::size_t offset) {
    return reinterpret_cast<A*>(io.scratch + offset);
  }
  static AttentionIo<D> core_io(const Op& op, const Io<D>& io, const Values& v) {
    const auto mask = [&](std::size_t i) { return i > 0 ? io.x[i] : nullptr; };
    return {io.step,
            io.device,
            io.key,
            v.q,
            v.k,
            v.v,
            mask(op.sources.key_mask),
            mask(op.sources.query_mask),
            mask(op.sources.mask_operand()),
            v.o,
            v.log_sums,
            io.scratch,
            nullptr,
            nullptr,
            nullptr,
            nullptr};
  }
  /// The operands of one product. `x` must outlive the result.
  static Io<D> of_product(Io<D> io, const Place& at, const A* const& x) {
    if (x != io.x[0]) io.batch = nullptr;
    io.x = &x;
    io.w += at.weights;
    if (io.dw != nullptr) io.dw += at.weights;
    if (io.once != nullptr) io.once += at.once;
    io.saved = nullptr;
    return io;
  }
  static void multiply(InnerKernel<DenseOp, D>& kernel, const DenseOp& op, const Io<D>& io,
                       const Place& at, const A* x, A* y) {
    Io<D> of = of_product(io, at, x);
    of.y = y;
    kernel.forward(op, of);
  }
  static void differentiate(InnerKernel<DenseOp, D>& kernel, const DenseOp& op, const Io<D>& io,
                            const Place& at, const A* x, A* dy, A* dx) {
    Io<D> of = of_product(io, at, x);
    of.y = nullptr;
    of.dy = dy;
    of.dx = &dx;
    kernel.backward(op, of);
  }
};

/// The parameters of an attention layer in Keras' order. Fans are those of the products, as Keras
/// 3.15 computes them for its EinsumDense layers.
template <auto... Options>
constexpr std::array<Parameter, 8> attention_parameters(const AttentionProducts& products,
                                                        const DotProductAttentionOp& a) {
  const Initializer kernel = kernel_initializer_of<Options...>(&initialize<glorot_uniform>),
                    bias = bias_initializer_of<Options...>(&initialize<zeros>);
  const Penalty of_kernel = kernel_penalty<Options...>(), of_bias = bias_penalty<Options...>();
  const bool has = has_bias<Options...>();
  const auto fans = [](const DenseOp& p) { return Fans{p.inputs, p.units}; };
  const Fans q = fans(products.query), k = fans(products.key), v = fans(products.value),
             o = fans(products.output);
  return {
      Parameter{"query/kernel", shape(q.in, a.heads, a.key_dim), q, kernel, of_kernel, true, true},
      Parameter{"query/bias", shape(a.heads, a.key_dim), q, bias, of_bias, true, has},
      Parameter{"key/kernel", shape(k.in, a.kv_heads, a.key_dim), k, kernel, of_kernel, true, true},
      Parameter{"key/bias", shape(a.kv_heads, a.key_dim), k, bias, of_bias, true, has},
      Parameter{"value/kernel", shape(v.in, a.kv_heads, a.value_dim), v, kernel, of_kernel, true,
                true},
      Parameter{"value/bias", shape(a.kv_heads, a.value_dim), v, bias, of_bias, true, has},
      Parameter{"attention_output/kernel", shape(a.heads, a.value_dim, o.out), o, kernel, of_kernel,
                true, true},
      Parameter{"attention_output/bias", shape(o.out), o, bias, of_bias, true, has}};
}

/// The rules among Options.
template <auto... Options>
constexpr AttentionRules attention_rules() {
  return {option<DropoutWithin, Options...>({}).rate.value, option<Causal, Options...>(Causal{}).on,
          option<SlidingWindow, Options...>(SlidingWindow{}).size,
          option<Rotary, Options...>(Rotary{})};
}

/// Whether O is an option of every attention layer.
template <class O>
inline constexpr bool is_attention_option =
    is_any_of<O, UseBias, DropoutWithin, Causal, AttentionMask, SlidingWindow, Rotary> ||
    is_kernel_initializer<O> || is_bias_initializer<O> || is_kernel_regularizer<O> ||
    is_bias_regularizer<O>;

/// Base of the attention layers: their operands.
template <auto... Options>
struct AttentionOperands {
  static constexpr bool supports_masking = true;
  static constexpr bool has_mask = option<AttentionMask, Options...>({false}).on;

  template <Shape In>
  struct Requires {
    static_assert(In.rank == 2,
                  "lockstep::Attention: the input is not (steps, features); put Reshape or "
                  "Embedding before it");
    static_assert(
        In.rank != 2 || !has_mask,
        "lockstep::Attention: with ls::attention_mask the mask is the last "
        "operand; write Let<name, From<\"x\", \"mask\">, MultiHeadAttention<...>> in a Graph");
  };
  template <Shape, Shape>
  struct RequiresOperands {
    static_assert(
        has_mask && false,
        "lockstep::Attention: the operands do not fit; query, value and key are (steps, "
        "features), value and key have as many steps, and with ls::attention_mask the last operand "
        "is the mask (steps of the query, steps of the key)");
  };
  template <std::same_as<Shape>... More>
    requires(sizeof...(More) <= (has_mask ? 3 : 2))
  static constexpr bool accepts(Shape query, More... more) {
    const std::array<Shape, 4> operands{query, more...};
    const AttentionSources s = sources(more...);
    const Shape value = s.value_of(query), key = s.key_of(query);
    return query.rank == 2 && value.rank == 2 && key.rank == 2 && value[0] == key[0] &&
           (!has_mask ||
            (s.attention_mask > 1 && operands[s.mask_operand()] == shape(query[0], key[0])));
  }

 protected:
  /// From the shapes of the operands after the query.
  template <std::same_as<Shape>... More>
  static constexpr AttentionSources sources(More... more) {
    const std::array<Shape, 4> given{more...};
    constexpr int count = 1 + static_cast<int>(sizeof...(More)),
                  operands = has_mask && count > 1 ? count - 1 : count;
    return {operands,
            operands > 1 ? given[0] : Shape{},
            operands > 2 ? given[1] : Shape{},
            0,
            0,
            has_mask ? count : 1};
  }
};

/// Checks what all attention layers have in common.
template <AttentionRules Rules, int KeyDim>
struct CheckAttentionRules {
  static_assert(Rules.dropout >= 0 && Rules.dropout < 1,
                "lockstep::MultiHeadAttention: the rate of dropout must be in [0, 1); write "
                "ls::dropout(0.1)");
  static_assert(Rules.window >= 0,
                "lockstep::MultiHeadAttention: the size of sliding_window must be at least 1");
  static_assert(!Rules.rotary.on() || KeyDim % 2 == 0,
                "lockstep::MultiHeadAttention: ls::rotary turns pairs of elements, so the size of "
                "a head must be even");
};

}  // namespace detail

template <detail::ProjectsAttention Op, class D>
  requires HasKernel<DenseOp, D> && HasKernel<detail::AttentionOf<Op>, D>
struct Kernel<Op, D> : detail::ProjectedAttention<Op, D> {
  using library_kernel = std::conditional_t<detail::of_library<DenseOp, D> &&
                                                detail::of_library<detail::AttentionOf<Op>, D>,
                                            Kernel, void>;
};

}  // namespace lockstep
