#include "lockstep/model/layer_names.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/model/parallel.hpp"
#include "lockstep/model/plan.hpp"
#include "lockstep/model/recompute.hpp"
#include "lockstep/model/repeat.hpp"
#include "lockstep/model/residual.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/training/parameters.hpp"

namespace {

namespace ls = lockstep;
using Names = std::vector<std::string>;

template <class Net>
Names layer_names() {
  Names names;
  for (int i = 0; i < Net::graph.nodes; ++i)
    names.push_back(ls::detail::layer_name(Net::graph.node[static_cast<std::size_t>(i)]));
  return names;
}
template <class Net>
Names parameter_names() {
  Names names;
  for (const auto& p : ls::detail::parameters_of<Net>()) names.push_back(p.name);
  return names;
}

// A name may be a view, a pointer or an array.
struct Encoder : ls::Sequential<ls::Dense<8, ls::relu>, ls::Dense<4>> {
  static constexpr std::string_view name = "encoder";
};
struct Inner : ls::Residual<ls::Dense<8>> {
  static constexpr const char* name = "inner";
};
struct Decoder : ls::Sequential<ls::Input<4>, ls::Dense<8>, ls::Repeat<2, Inner>, ls::Dense<6>> {
  static constexpr char name[] = "decoder";
};

struct Dense2 : ls::Sequential<ls::Dense<3>, ls::Dense<3>> {
  static constexpr std::string_view name = "dense";
};

struct Single : ls::Sequential<ls::Dense<3>> {
  static constexpr std::string_view name = "block";
};

struct Noisy : ls::Sequential<ls::Dropout<0.5>> {
  static constexpr std::string_view name = "block";
};

/// Names by the definition: a path of blocks, and one count per name in each of them.
struct Namer {
  std::string path;
  std::map<std::string, int> counts{};  ///< by the whole name
  Names layers{};

  std::string next(std::string_view name) {
    const std::string whole = path + std::string(name);
    const int number = counts[whole]++;
    return number == 0 ? whole : whole + "_" + std::to_string(number);
  }
};

template <class Part>
void walk(Namer& namer) {
  Part::name_layers(namer);
}

/// A layer of a drawn model.
struct Leaf : ls::Dense<3> {
  static void name_layers(Namer& namer) { namer.layers.push_back(namer.next("dense")); }
};
template <class A, class B>
struct Stack : ls::Sequential<A, B> {
  static void name_layers(Namer& namer) {
    walk<A>(namer);
    walk<B>(namer);
  }
};
template <class A, class B>
struct Sum : ls::Residual<A, B> {
  static void name_layers(Namer& namer) {
    walk<A>(namer);
    walk<B>(namer);
    namer.layers.push_back(namer.next("add"));
  }
};
template <class A, class B>
struct Branches : ls::Parallel<ls::Add, A, B, A> {
  static void name_layers(Namer& namer) {
    walk<A>(namer);
    walk<B>(namer);
    walk<A>(namer);
    namer.layers.push_back(namer.next("add"));
  }
};
template <class A>
struct Again : ls::Recompute<A> {
  static void name_layers(Namer& namer) { walk<A>(namer); }
};
template <class A>
struct Thrice : ls::Repeat<3, A> {
  static void name_layers(Namer& namer) {
    for (int i = 0; i < 3; ++i) walk<A>(namer);
  }
};
/// One of three names, of which two are those of layers.
template <class A, unsigned Which>
struct Named : A {
  static constexpr std::string_view name = Which == 0 ? "block" : Which == 1 ? "dense" : "add";
  static void name_layers(Namer& namer) {
    const std::string outer = std::exchange(namer.path, namer.next(name) + "/");
    A::name_layers(namer);
    namer.path = outer;
  }
};

constexpr unsigned drawn(unsigned seed, unsigned salt) {
  unsigned x = seed * 2654435761u + salt * 40503u + 12345u;
  for (int i = 0; i < 3; ++i) x = (x ^ (x >> 15)) * 2246822519u;
  return x >> 8;
}
template <unsigned Seed, int Depth>
constexpr auto draw() {
  constexpr unsigned kind = drawn(Seed, 1) % 8;
  if constexpr (Depth == 0 || kind == 0) {
    return Leaf{};
  } else {
    using A = decltype(draw<Seed * 2 + 1, Depth - 1>());
    using B = decltype(draw<Seed * 2 + 2, Depth - 1>());
    if constexpr (kind == 1)
      return Sum<A, B>{};
    else if constexpr (kind == 2)
      return Branches<A, B>{};
    else if constexpr (kind == 3)
      return Again<Stack<A, B>>{};
    else if constexpr (kind == 4)
      return Thrice<A>{};
    else if constexpr (kind == 5)
      return Stack<A, B>{};
    else
      return Named<Stack<A, B>, drawn(Seed, 2) % 3>{};
  }
}
template <unsigned Seed>
struct Drawn : ls::Sequential<ls::Input<3>, Leaf, decltype(draw<Seed, 4>()), Leaf> {
  static Names expected() {
    Namer namer;
    walk<Leaf>(namer);
    walk<decltype(draw<Seed, 4>())>(namer);
    walk<Leaf>(namer);
    return namer.layers;
  }
};
template <unsigned Seed>
std::size_t check_drawn() {
  CAPTURE(Seed);
  const Names names = layer_names<Drawn<Seed>>();
  CHECK(names == Drawn<Seed>::expected());
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
  std::size_t slashes = 0;
  for (const std::string& name : names) slashes += name.find('/') != std::string::npos;
  return slashes;
}

}  // namespace

TEST_CASE("a named block begins the names of its layers, which it numbers from 0") {
  struct Net : ls::Sequential<ls::Input<6>, ls::Dense<6>, Encoder, ls::Recompute<Decoder>,
                              ls::Dense<4>, Decoder> {};
  CHECK(layer_names<Net>() ==
        Names{"dense", "encoder/dense", "encoder/dense", "encoder/dense_1", "decoder/dense",
              "decoder/inner/dense", "decoder/inner/add", "decoder/inner_1/dense",
              "decoder/inner_1/add", "decoder/dense_1", "dense_1", "decoder_1/dense",
              "decoder_1/inner/dense", "decoder_1/inner/add", "decoder_1/inner_1/dense",
              "decoder_1/inner_1/add", "decoder_1/dense_1"});
  CHECK(parameter_names<Net>()[2] == "encoder/dense/kernel");
  CHECK(parameter_names<Net>().back() == "decoder_1/dense_1/bias");
}

TEST_CASE("the names within a block are those of the block as a model") {
  struct Net : ls::Sequential<ls::Input<8>, ls::Dense<4>, Decoder> {};
  Names with_block;
  for (const std::string& name : parameter_names<Decoder>())
    with_block.push_back("decoder/" + name);
  Names all{"dense/kernel", "dense/bias"};
  all.insert(all.end(), with_block.begin(), with_block.end());
  CHECK(parameter_names<Net>() == all);
  CHECK(parameter_names<Decoder>().front() == "dense/kernel");  // its own name is not in front
}

TEST_CASE("a block counts as one layer of its name") {
  struct Net : ls::Sequential<ls::Input<3>, ls::Dense<3>, Dense2, ls::Dense<3>, Dense2> {};
  CHECK(layer_names<Net>() == Names{"dense", "dense_1/dense", "dense_1/dense_1", "dense_2",
                                    "dense_3/dense", "dense_3/dense_1"});
}

TEST_CASE("eleven equal blocks have numbers of one and two digits") {
  struct Net : ls::Sequential<ls::Input<3>, ls::Repeat<11, Single>> {};
  CHECK(layer_names<Net>()[1] == "block_1/dense");
  CHECK(layer_names<Net>()[9] == "block_9/dense");
  CHECK(layer_names<Net>()[10] == "block_10/dense");
}

TEST_CASE("names of drawn nestings follow the definition and are distinct") {
  const std::size_t in_blocks = [&]<unsigned... Seeds>(std::integer_sequence<unsigned, Seeds...>) {
    return (check_drawn<Seeds>() + ...);
  }(std::make_integer_sequence<unsigned, 24>{});
  CHECK(in_blocks > 200);
}

TEST_CASE("names differ in equal numbers only if they are not forms of one another") {
  const auto equal = [](std::vector<std::string_view> names) {
    ls::detail::NameNumbers<16> numbers;
    numbers.next("outer_1");
    numbers.enter();
    for (const std::string_view name : names) numbers.next(name);
    return numbers.has_equal_names();
  };
  CHECK(equal({"decoder", "decoder", "decoder_1"}));
  CHECK(equal({"decoder_1", "decoder", "decoder"}));
  CHECK(equal({"a", "a", "a_1", "b"}));
  CHECK_FALSE(equal({"decoder", "decoder_1"}));
  CHECK_FALSE(equal({"decoder", "decoder", "decoder_2"}));
  CHECK_FALSE(equal({"decoder", "decoder", "decoder_01"}));
  CHECK_FALSE(equal({"decoder", "decoder", "decoder1", "_1", "1", "decoder_0"}));
  CHECK_FALSE(equal({"outer", "outer"}));  // another block's
}

TEST_CASE("only printable ASCII without a slash names a block") {
  using ls::detail::is_block_name;
  CHECK(is_block_name("decoder"));
  CHECK(is_block_name("block.1 ~"));
  CHECK_FALSE(is_block_name(""));
  CHECK_FALSE(is_block_name("a/b"));
  CHECK_FALSE(is_block_name("a\n"));
  CHECK_FALSE(
      is_block_name("gr\xC3\xB6\xC3\x9F"
                    "e"));
  CHECK_FALSE(is_block_name("\x7F"));
}

TEST_CASE("the plan names the blocks of its steps and buckets") {
  struct Net : ls::Sequential<ls::Input<6>, Encoder, ls::Dense<4>, Decoder> {};
  constexpr auto& plan = ls::plan<Net, ls::Reference<float>>;
  STATIC_REQUIRE(plan.activations[0].block == "encoder");
  STATIC_REQUIRE(plan.buckets.back().block == "encoder");
  bool inner = false;
  for (const auto& activation : plan.activations)
    inner = inner || (activation.block == "decoder/inner_1" && activation.layer == "add");
  CHECK(inner);
}

TEST_CASE("random layers of equal names in different blocks draw different numbers") {
  struct Net : ls::Sequential<ls::Input<3>, ls::Dropout<0.5>, Noisy, ls::Dense<3>, Noisy> {};
  std::set<std::uint64_t> keys;
  constexpr auto& plan = ls::detail::PlanOf<Net, ls::Reference<float>>::plan;
  for (int i = 0; i < plan.steps; ++i) keys.insert(plan.step[ls::detail::StepId{i}].key);
  CHECK(keys.size() == 4);
  // Outside of blocks the key is that of earlier versions, so that masks do not change.
  CHECK(plan.step[ls::detail::StepId{0}].key == ls::mix(ls::hash_name("dropout"), 0));
}
