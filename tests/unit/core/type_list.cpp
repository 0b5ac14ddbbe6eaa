#include "lockstep/core/type_list.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

using lockstep::Constant;
using lockstep::List;
using namespace lockstep::detail;

namespace {
struct Op {
  int units;
};
template <auto>
struct Layer {};

int general(const Op& op) { return op.units; }
template <Op op>
int special(Constant<op>) {
  return -op.units;
}
int special(const Op& op) { return op.units; }
}  // namespace

TEST_CASE("a union has each type once, in order of first appearance") {
  STATIC_CHECK(std::is_same_v<Union<List<int, char, int>, List<char, long, int>, List<>>,
                              List<int, char, long>>);
  STATIC_CHECK(std::is_same_v<Union<>, List<>>);
  STATIC_CHECK(std::is_same_v<Union<List<>>, List<>>);
}

TEST_CASE("types that differ in a value are different types") {
  STATIC_CHECK(
      std::is_same_v<Union<List<Layer<1>, Layer<2>>, List<Layer<1>>>, List<Layer<1>, Layer<2>>>);
  STATIC_CHECK(type_id<Layer<1>> != type_id<Layer<2>>);
  STATIC_CHECK(type_id<int> != type_id<const int>);
}

TEST_CASE("a type is found by index, and its index by type") {
  STATIC_CHECK(std::is_same_v<At<0, int, char, long>, int>);
  STATIC_CHECK(std::is_same_v<At<2, int, char, long>, long>);
  STATIC_CHECK(std::is_same_v<At<1, int, int>, int>);
  STATIC_CHECK(index_in<long>(List<int, char, long, long>{}) == 2);
  STATIC_CHECK(index_in<float>(List<int, char>{}) == -1);
  STATIC_CHECK(index_in<float>(List<>{}) == -1);
}

TEST_CASE("class_name has neither namespaces nor template arguments") {
  CHECK(class_name<Op>() == "Op");
  CHECK(class_name<Layer<7>>() == "Layer");
  CHECK(class_name<std::vector<int>>() == "vector");
  CHECK(class_name<lockstep::List<lockstep::List<>>>() == "List");
}

TEST_CASE("a Constant converts to its value, and overloads for the Constant are preferred") {
  CHECK(general(Constant<Op{3}>{}) == 3);
  CHECK(special(Constant<Op{3}>{}) == -3);
  CHECK(special(Op{3}) == 3);
  STATIC_CHECK(std::is_empty_v<Constant<Op{3}>>);
}
