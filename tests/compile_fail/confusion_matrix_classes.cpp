// expect: lockstep::ConfusionMatrix: at least 2 classes are needed
#include "lockstep/metrics/confusion_matrix.hpp"

int main() {
  const lockstep::ConfusionMatrix<1> metric;
  return static_cast<int>(metric.name.size());
}
