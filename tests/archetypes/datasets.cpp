/// \file
/// Each pipeline operation yields a Dataset. Asserted here rather than in the headers, where every
/// user's translation unit would instantiate the pipelines.
#include "lockstep/data/images/cutout.hpp"
#include "lockstep/data/images/per_image_standardization.hpp"
#include "lockstep/data/images/random_crop.hpp"
#include "lockstep/data/images/random_flip.hpp"
#include "lockstep/data/images/resize_with_crop_or_pad.hpp"
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/cache.hpp"
#include "lockstep/data/operations/features_as_targets.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/prefetch.hpp"
#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/sample_weights.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/operations/skip.hpp"
#include "lockstep/data/operations/take.hpp"
#include "lockstep/data/sources/tensors.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {
namespace {

struct Negate {
  void operator()(auto& example) const {
    for (float& v : example.x) v = -v;
  }
};
struct Sum {
  void operator()(std::span<const float> in, std::span<float> out) const {
    out[0] = 0;
    for (const float v : in) out[0] += v;
  }
};

static_assert(BatchedDataset<pipeline::Batch<Tensors<float, float>>>);
static_assert(Dataset<pipeline::Cache<pipeline::Map<Tensors<std::uint8_t, std::int32_t>, Negate>>>);
static_assert(Dataset<pipeline::ImageMap<Tensors<std::uint8_t, std::int32_t>, pipeline::Cutout>>);
static_assert(Dataset<pipeline::FeaturesAsTargets<Tensors<std::uint8_t, std::int32_t>>>);
static_assert(Dataset<pipeline::Map<Tensors<std::uint8_t, std::int32_t>, Negate>>);
static_assert(Dataset<pipeline::ShapeMap<shape(1), Tensors<float, double>, Sum>>);
static_assert(
    Dataset<pipeline::ImageMap<Tensors<std::uint8_t, std::int32_t>, pipeline::Standardize>>);
static_assert(BatchedDataset<pipeline::Prefetch<pipeline::Batch<Tensors<float, float>>>>);
static_assert(
    Dataset<pipeline::ImageWindow<Tensors<std::uint8_t, std::int32_t>, pipeline::RandomWindow>>);
static_assert(
    Dataset<pipeline::ImageMap<Tensors<std::uint8_t, std::int32_t>, pipeline::FlipLeftRight>>);
static_assert(Dataset<pipeline::Repeat<Tensors<float, float>>>);
static_assert(Dataset<pipeline::Rescale<Tensors<std::uint8_t, std::int32_t>>>);
static_assert(Dataset<pipeline::Rescale<pipeline::Rescale<Tensors<double, float>>>>);
static_assert(
    Dataset<pipeline::ImageWindow<Tensors<std::uint8_t, std::int32_t>, pipeline::CentralWindow>>);
static_assert(has_weights<pipeline::SampleWeights<Tensors<float, float>, double>>);
static_assert(!has_weights<Tensors<float, float>>);
static_assert(Dataset<pipeline::Shuffle<Tensors<float, float>>>);
static_assert(Dataset<pipeline::Skip<Tensors<float, float>>>);
static_assert(Dataset<pipeline::Take<Tensors<float, float>>>);
static_assert(Dataset<Tensors<std::uint8_t, std::int32_t>> && Dataset<Tensors<float, float>> &&
              Dataset<Tensors<double, double>>);
static_assert(pipeline::GathersScaled<Tensors<std::uint8_t, std::int32_t>, float>);

// The concept has more than one answer, see ImageOperation.
static_assert(!Dataset<std::vector<float>> && !Dataset<int> && Dataset<Tensors<float, float>>);

}  // namespace
}  // namespace lockstep
