// The networks below are also defined in one_definition_other.cpp, as in a program that leaves out
// the unnamed namespace.
#include "lockstep/training/checks/one_definition.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <optional>

#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;

struct DefinedTwice : ls::Sequential<ls::Input<4>, ls::Dense<8, ls::relu>, ls::Dense<1>> {};
struct DefinedAlike : ls::Sequential<ls::Input<4>, ls::Dense<8, ls::relu>, ls::Dense<1>> {};
namespace {
struct InUnnamed : ls::Sequential<ls::Input<4>, ls::Dense<8, ls::relu>, ls::Dense<1>> {};
}  // namespace

extern void make_networks_of_other_file();  // not in a unit with other tests

namespace {
template <class Net>
void make() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, ls::SGD{}};
}
}  // namespace

TEST_CASE("two source files that define networks of one name differently are found") {
  using Catch::Matchers::ContainsSubstring;
  CHECK_THROWS_WITH(make<DefinedTwice>(),
                    ContainsSubstring("two source files define a network named 'DefinedTwice'"));
  CHECK_NOTHROW(make<DefinedAlike>());
  CHECK_NOTHROW(make<InUnnamed>());
  CHECK_NOTHROW(make_networks_of_other_file());
}

TEST_CASE("definitions that are gone, as those of an unloaded library, are not compared") {
  const char key = 0, other = 0;
  const ls::detail::NetworkDefinition a(&key, 1), same(&key, 1), unrelated(&other, 2);
  CHECK_NOTHROW(a.check("Net"));
  std::optional<ls::detail::NetworkDefinition> b(std::in_place, &key, 2u);
  CHECK_THROWS_AS(a.check("Net"), ls::UsageError);
  CHECK_THROWS_AS(b->check("Net"), ls::UsageError);
  CHECK_NOTHROW(unrelated.check("Net"));
  b.reset();
  CHECK_NOTHROW(a.check("Net"));
}

TEST_CASE("the hash of a network's layers depends on activations, shapes and parameters") {
  using ls::detail::hash_of_layers;
  const auto hash = []<class... Layers>(ls::List<Layers...>) {
    struct N : ls::Sequential<ls::Input<4>, Layers...> {};
    return hash_of_layers<N>();
  };
  const auto base = hash(ls::List<ls::Dense<8, ls::relu>>{});
  CHECK(base == hash(ls::List<ls::Dense<8, ls::relu>>{}));
  CHECK(base != hash(ls::List<ls::Dense<8, ls::tanh>>{}));
  CHECK(base != hash(ls::List<ls::Dense<9, ls::relu>>{}));
  CHECK(base != hash(ls::List<ls::Dense<8>, ls::Dense<1>>{}));
}
