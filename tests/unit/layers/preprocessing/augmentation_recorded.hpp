/// \file
/// Outputs of Keras' layers for the image whose number i is (37 i mod 101) / 10, recorded by
/// record_augmentation.py.
#pragma once

#include <string>
#include <vector>

#include "golden/recorded.hpp"
#include "lockstep/layers/layers.hpp"

namespace recorded {

template <class Op>
struct Recorded {
  Op op;
  std::vector<double> y;
};

/// \returns `op_of(row)` and the numbers of each row of `list`.
template <class Op>
std::vector<Recorded<Op>> ops(const char* list, Op (*op_of)(const Json&)) {
  std::vector<Recorded<Op>> all;
  for (const auto document = read("augmentation"); const Json& row : document[list].GetArray())
    all.push_back({op_of(row), numbers(row["y"])});
  return all;
}

inline lockstep::Shape shape_of(const Json& row) {
  const Json& extents = row["shape"];
  return lockstep::shape(extents[0].GetInt(), extents[1].GetInt(), extents[2].GetInt());
}
inline lockstep::FactorRange factor_of(const Json& row, unsigned i) {
  const float factor = row["factors"][i].GetFloat();
  return {factor, factor};
}
inline lockstep::Fill fill_of(const Json& row) {
  const std::string fill = text(row["fill"]);
  return fill == "reflect"   ? lockstep::fill_reflect
         : fill == "wrap"    ? lockstep::fill_wrap
         : fill == "nearest" ? lockstep::fill_nearest
                             : lockstep::fill_constant(2.5f);
}
inline auto interpolation_of(const Json& row) {
  return text(row["interpolation"]) == "nearest" ? lockstep::nearest : lockstep::bilinear;
}

inline auto rotations() {
  return ops<lockstep::RandomRotationOp>("rotations", [](const Json& row) {
    return lockstep::RandomRotationOp{shape_of(row), factor_of(row, 0), fill_of(row),
                                      interpolation_of(row)};
  });
}
inline auto translations() {
  return ops<lockstep::RandomTranslationOp>("translations", [](const Json& row) {
    return lockstep::RandomTranslationOp{shape_of(row), factor_of(row, 0), factor_of(row, 1),
                                         fill_of(row), interpolation_of(row)};
  });
}
inline auto flips() {
  return ops<lockstep::RandomFlipOp>("flips", [](const Json& row) {
    const std::string mode = text(row["mode"]);
    return lockstep::RandomFlipOp{shape_of(row), mode == "horizontal" ? lockstep::horizontal
                                                 : mode == "vertical"
                                                     ? lockstep::vertical
                                                     : lockstep::horizontal_and_vertical};
  });
}
/// Outside training.
inline auto crops() {
  return ops<lockstep::RandomCropOp>("crops", [](const Json& row) {
    return lockstep::RandomCropOp{shape_of(row), row["height"].GetInt(), row["width"].GetInt()};
  });
}

}  // namespace recorded
