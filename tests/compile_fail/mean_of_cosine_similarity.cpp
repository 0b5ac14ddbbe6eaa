// expect: lockstep::MeanOf: the loss CosineSimilarity is the negated cosine; write
// ls::MeanCosineSimilarity{}
#include "lockstep/losses/cosine_similarity.hpp"
#include "lockstep/metrics/mean_of.hpp"

int main() {
  const lockstep::MeanOf<lockstep::CosineSimilarity> metric;
  return static_cast<int>(metric.name.size());
}
