/// \file
/// The peers' workload in LibTorch, as a C++ user writes it: the loop of pytorch_model.py.
/// Built by setup.sh against the libraries of PyPI's torch.
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "peer.hpp"

namespace nn = torch::nn;

namespace {

nn::Sequential make(const std::string& model) {
  if (model == "mlp")
    return nn::Sequential(nn::Flatten(), nn::Linear(784, 512), nn::ReLU(), nn::Linear(512, 512),
                          nn::ReLU(), nn::Linear(512, 10));
  return nn::Sequential(nn::Conv2d(1, 32, 3), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),
                        nn::Linear(13 * 13 * 32, 64), nn::ReLU(), nn::Linear(64, 10));
}

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const std::string& model,
                                                      nn::Sequential net) {
  if (model == "mlp")
    return std::make_unique<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(1e-3));
  return std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(1e-3));
}

}  // namespace

int main(int argc, char** argv) {
  const peer::Options options = peer::parse(argc, argv);
  torch::set_num_threads(options.threads);
  torch::set_num_interop_threads(1);
  torch::manual_seed(1);

  peer::Digits digits;
  const auto count = static_cast<std::int64_t>(peer::examples);
  const auto batch = static_cast<std::int64_t>(options.batch);
  const auto x_all = torch::from_blob(digits.images.data(), {count, 1, 28, 28}, torch::kUInt8)
                         .to(torch::kFloat32)
                         .div_(255);
  const auto y_all =
      torch::from_blob(digits.labels.data(), {count}, torch::kInt32).to(torch::kInt64);
  auto net = make(options.model);
  const auto optimizer = optimizer_of(options.model, net);
  const bool trains = options.work == "fit";
  net->train(trains);

  peer::Chunks chunks;
  auto order = torch::randperm(count);
  std::int64_t next = 0;
  for (std::size_t i = 0; i < options.chunks(); ++i) {
    chunks.begin();
    auto loss_sum = torch::zeros({});
    auto correct = torch::zeros({}, torch::kInt64);
    if (trains) {
      for (std::size_t step = 0; step < peer::chunk; ++step) {
        if (next + batch > count) {
          order = torch::randperm(count);
          next = 0;
        }
        const auto index = order.slice(0, next, next + batch);
        next += batch;
        const auto x = x_all.index_select(0, index), y = y_all.index_select(0, index);
        optimizer->zero_grad();
        const auto logits = net->forward(x);
        const auto loss = nn::functional::cross_entropy(logits, y);
        loss.backward();
        optimizer->step();
        loss_sum += loss.detach();
        correct += (logits.argmax(1) == y).sum();
      }
      loss_sum.item<float>(), correct.item<std::int64_t>();
    } else {
      const torch::InferenceMode guard;
      std::vector<torch::Tensor> outputs;
      for (std::int64_t step = 0; step < static_cast<std::int64_t>(peer::chunk); ++step) {
        const auto logits = net->forward(x_all.slice(0, step * batch, (step + 1) * batch));
        if (options.work == "predict") {
          outputs.push_back(logits);
          continue;
        }
        const auto y = y_all.slice(0, step * batch, (step + 1) * batch);
        loss_sum += nn::functional::cross_entropy(logits, y);
        correct += (logits.argmax(1) == y).sum();
      }
      if (options.work == "predict")
        torch::cat(outputs);
      else
        loss_sum.item<float>(), correct.item<std::int64_t>();
    }
    chunks.end();
  }
  chunks.report("libtorch", options, "\"libtorch\": \"" + std::string(TORCH_VERSION) + "\"");
}
