#include "lockstep/core/dtype.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>

using lockstep::DType;
using lockstep::dtype_of;
using lockstep::name_of;
using lockstep::size_of;

namespace {
constexpr DType all[] = {DType::boolean, DType::uint8,   DType::int8,     DType::uint16,
                         DType::int16,   DType::float16, DType::bfloat16, DType::uint32,
                         DType::int32,   DType::float32, DType::uint64,   DType::int64,
                         DType::float64};

template <class T>
bool agrees(std::string_view name) {
  return size_of(dtype_of<T>) == sizeof(T) && name_of(dtype_of<T>) == name;
}
}  // namespace

TEST_CASE("a C++ type has the dtype with its size and Keras' name") {
  CHECK(agrees<bool>("bool"));
  CHECK(agrees<std::uint8_t>("uint8"));
  CHECK(agrees<std::int8_t>("int8"));
  CHECK(agrees<std::uint16_t>("uint16"));
  CHECK(agrees<std::int16_t>("int16"));
  CHECK(agrees<std::uint32_t>("uint32"));
  CHECK(agrees<std::int32_t>("int32"));
  CHECK(agrees<float>("float32"));
  CHECK(agrees<std::uint64_t>("uint64"));
  CHECK(agrees<std::int64_t>("int64"));
  CHECK(agrees<double>("float64"));
}

TEST_CASE("the 16-bit floats, which C++20 lacks, have sizes and names") {
  CHECK(size_of(DType::float16) == 2);
  CHECK(size_of(DType::bfloat16) == 2);
  CHECK(name_of(DType::float16) == "float16");
  CHECK(name_of(DType::bfloat16) == "bfloat16");
}

TEST_CASE("no two dtypes share a name") {
  std::set<std::string_view> names;
  for (const DType type : all) names.insert(name_of(type));
  CHECK(names.size() == std::size(all));
  CHECK_FALSE(names.contains("?"));
}
