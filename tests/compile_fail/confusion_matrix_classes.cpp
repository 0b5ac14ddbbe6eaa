// expect: lockstep::ConfusionMatrix: it needs 2 classes or more
#include "lockstep/metrics/confusion_matrix.hpp"

int main() {
  const lockstep::ConfusionMatrix<1> metric;
  return static_cast<int>(metric.name.size());
}
