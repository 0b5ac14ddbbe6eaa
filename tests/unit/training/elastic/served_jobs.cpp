/// Elastic jobs whose processes own parts of the weights, parameter servers or all workers under
/// ls::Sharded, emulated by threads: a process fails at any exchange, and the others get the bits of a
/// run without losses, or all end with one sentence.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server.hpp"
#include "lockstep/sharded.hpp"
#include "lockstep/training/elastic/recovering_runs.hpp"
#include "lockstep/training/step/recoverable.hpp"
#include "lockstep/training/step/served.hpp"
#include "support/folder.hpp"
#include "unit/collectives/tcp_places.hpp"
#include "unit/training/elastic/plans.hpp"

namespace {

using namespace plans;
using Catch::Matchers::ContainsSubstring;
using Kind = Fault::Kind;

/// More weights than a block of 64 elements for each server, and all that a step changes.
struct Wide : ls::Sequential<ls::Input<2>, ls::Dense<40>, ls::BatchNormalization<>, ls::ReLU,
                             ls::Dropout<ls::rate(0.4f)>,
                             ls::Dense<3, ls::kernel_regularizer(ls::L2{0.01})>> {};

/// The sockets between workers and servers, and between the first server and all, by generation.
class Wires {
 public:
  using Pairs = std::map<std::size_t, ls::ProcessGroup>;
  Pairs adopt(std::uint64_t generation, std::size_t rank, std::size_t size,
              const ls::ReplicaRoles& roles) {
    const std::scoped_lock lock(mutex_);
    std::vector<Pairs>& all = pairs_[generation];
    if (all.empty()) all = connect(size, roles);
    return std::move(all.at(rank));
  }

 private:
  static std::vector<Pairs> connect(std::size_t size, const ls::ReplicaRoles& roles) {
    std::vector<Pairs> all(size);
    for (std::size_t a = 0; a < size; ++a)
      for (std::size_t b = a + 1; b < size; ++b) {
        const ls::Slice workers = roles.computing, servers = roles.owners;
        if (!(workers.contains(a) && servers.contains(b)) &&
            !(workers.contains(b) && servers.contains(a)) && a != servers.first &&
            b != servers.first)
          continue;
        auto ends = tcp_test::connect_all(2, ls::detail::Topology::direct, 1, false);
        const auto group = [&](std::size_t member) {
          return ls::TcpGroup(std::make_shared<ls::TcpMesh>(
                                  ls::TcpMesh::Options{.rank = member,
                                                       .size = 2,
                                                       .channels = 1,
                                                       .topology = ls::detail::Topology::direct,
                                                       .names = {a, b}},
                                  std::move(ends[member])),
                              {.timeout = std::chrono::seconds(20)});
        };
        all[a].emplace(b, group(0));
        all[b].emplace(a, group(1));
      }
    return all;
  }
  std::mutex mutex_;
  std::map<std::uint64_t, std::vector<Pairs>> pairs_;
};

/// One process of a job with servers.
struct Process : testing::ElasticWorker<Float> {
  using Base = testing::ElasticWorker<Float>;
  using update_policy = ls::Recoverable<ls::Served>;
  std::size_t copies = 1;
  std::shared_ptr<Wires> wires{};  ///< null: each step is an exchange of all processes
  std::size_t backups = 0;

  class Session : public Base::Session {
   public:
    explicit Session(const Process& p)
        : Base::Session(p),
          job_(p.job),
          worker_(p.worker),
          copies_(p.copies),
          wires_(p.wires),
          backups_(p.backups) {
      connect();
    }
    void form() {
      Base::Session::form();
      connect();
    }
    void reform(const std::string& why, const std::stop_token& stop) {
      pairs_.clear();
      Base::Session::reform(why, stop);
    }
    void form_alone(std::exception_ptr error) {
      pairs_.clear();
      Base::Session::form_alone(std::move(error));
    }
    bool has_phases() const { return wires_ != nullptr; }
    std::size_t backup_workers() const { return backups_; }
    static std::uint64_t staleness() { return 0; }
    Wires::Pairs& pairs() { return pairs_; }
    /// In phases faults come here, since messages of pairs are not seen.
    void note(std::uint64_t, ls::Phase phase) {
      if (wires_ == nullptr ||
          (phase != ls::Phase::data && phase != ls::Phase::update && phase != ls::Phase::reduce))
        return;
      try {
        job_->before(worker_);
        job_->after(worker_);
      } catch (const ls::CollectiveError& e) {
        throw ls::PeerLost(0, "thread", e.what(), std::nullopt);
      }
    }
    ls::ReplicaRoles roles() const {
      ls::ReplicaRoles roles{of(0), of(1)};
      roles.copies = std::min(copies_, std::max<std::size_t>(roles.owners.count, 1));
      roles.may_change = true;
      return roles;
    }
    ls::PeerLost lost_owners() const { return {0, "thread", "is the last owner", std::nullopt}; }
    void has_recovered() {}

   private:
    void connect() {
      if (wires_ != nullptr) pairs_ = wires_->adopt(view().number, rank(), workers(), roles());
    }
    ls::Slice of(int role) const {
      ls::Slice ranks;
      const auto& members = view().members;
      if (workers() != members.size()) return {0, 1};  // alone
      for (std::size_t r = 0; r < members.size(); ++r)
        if (job_->servers().role_of(members[r]) == role && ranks.count++ == 0) ranks.first = r;
      return ranks;
    }
    std::shared_ptr<ElasticJob> job_;
    std::size_t worker_, copies_;
    std::shared_ptr<Wires> wires_;
    std::size_t backups_;
    Wires::Pairs pairs_{};
  };
  Session open() const { return Session(*this); }
};

/// A worker that also owns a share.
struct Owner : testing::ElasticWorker<Float> {
  struct Session : testing::ElasticWorker<Float>::Session {
    using testing::ElasticWorker<Float>::Session::Session;
    ls::PeerLost lost_owners() const { return {0, "thread", "is the last owner", std::nullopt}; }
    void has_recovered() {}
  };
  Session open() const { return Session(*this); }
};

/// A job: the founders are an optional chief, workers, servers; then come newcomers. Without servers all
/// workers own shares.
struct Tasks {
  std::size_t workers = 2, servers = 3, copies = 2;
  bool chief = false;
  bool phases = false;  ///< asynchronous steps that miss no update, or with backups
  std::size_t backups = 0;
  std::vector<std::pair<bool, std::size_t>> newcomers{};  ///< whether it serves; when it joins

  std::size_t founders() const { return workers + servers + (chief ? 1u : 0u); }
  testing::Servers roles() const {
    testing::Servers its;
    if (chief) its.chief = 0;
    for (std::size_t i = founders() - servers; i < founders(); ++i) its.numbers.insert(i);
    for (std::size_t i = 0; i < newcomers.size(); ++i)
      if (newcomers[i].first) its.numbers.insert(founders() + i);
    return its;
  }
};

/// A short fit with validation, checkpoints by request, EMA, accumulation or clipping, an evaluation.
struct Short {
  ls::UpdateOptions with{};
  int way = 0;  ///< 0: of the library; 1: the program's steps; 2: averages in validation
  int epochs = 2;
  std::uint64_t steps_per_execution = 1;
  std::string folder{};
  template <class S>
  std::vector<double> operator()(const S& strategy) const {
    ls::Model m{Wide{},
                ls::Seed{7},
                strategy,
                replicas::crossentropy,
                ls::Adam{.learning_rate = 0.01, .weight_decay = 0.01, .with = with},
                ls::Accuracy{}};
    const auto data = line::classes(40) | ls::shuffle(16) | ls::batch(16);
    const auto test = line::classes(10) | ls::batch(6);
    auto options = line::quiet(epochs);
    options.steps_per_execution = steps_per_execution;
    options.verify_every = 2;
    if (way == 2) options.callbacks.push_back(ls::SwapEMAWeights{.swap_on_epoch = true});
    if (!folder.empty())
      options.checkpoint = {.directory = folder, .every = 2, .asynchronous = false};
    ls::History history;
    if (way == 1)
      history = m.fit(data, options, [&](const auto& b) {
        auto gradients = m.gradients_of(b);
        gradients *= 0.5;
        m.apply(gradients);
        m.train_step(b);
      });
    else
      history = m.fit(data, test, options);
    std::vector<double> found;
    for (const std::string& name : history.names())
      if (name != "stale_max" && name != "copies_dropped")
        found.insert(found.end(), history[name].begin(), history[name].end());
    if (way != 1) {
      m.set_learning_rate(0.02);
      m.fit(data, line::quiet(1));
    }
    for (const auto& [name, value] : m.evaluate(test)) found.push_back(value);
    const std::string digest = m.weights_sha256();
    found.insert(found.end(), digest.begin(), digest.end());
    return found;
  }
};

struct Ends {
  std::vector<std::vector<double>> found;
  std::vector<std::string> errors;
  std::vector<bool> have_ended;
  std::shared_ptr<ElasticJob> job;
};

Ends run(const Tasks& tasks, const Short& plan, std::vector<Fault> faults) {
  Ends ends;
  const std::size_t all = tasks.founders() + tasks.newcomers.size();
  ends.job =
      std::make_shared<ElasticJob>(tasks.founders(), 8, std::move(faults), 1, 1, tasks.roles());
  const auto wires = tasks.phases ? std::make_shared<Wires>() : nullptr;
  ends.found.resize(all);
  ends.errors.resize(all);
  ends.have_ended = testing::run_elastic<Float>(ends.job, all, [&](const auto& worker) {
    const std::size_t w = worker.worker;
    if (w >= tasks.founders()) ends.job->wait_for(tasks.newcomers[w - tasks.founders()].second);
    try {
      ends.found[w] = tasks.servers > 0 ? plan(Process{worker, tasks.copies, wires, tasks.backups})
                                        : plan(Owner{worker} | ls::Sharded{.copies = tasks.copies});
    } catch (const ls::Error& e) {
      ends.errors[w] = e.what();
    }
  });
  return ends;
}

/// `victim` fails at every stride-th exchange: all others have the bits of a quiet run.
void sweep(const Tasks& tasks, const Short& plan, std::size_t victim, Kind kind,
           std::size_t stride) {
  const std::vector<double> quiet = plan(ls::OneDevice<Float>{.virtual_shards = 8});
  std::size_t last = 0;
  for (std::size_t at = 0; at <= last; at += at == 0 ? 1 : stride) {
    if (!plan.folder.empty()) std::filesystem::remove_all(plan.folder);
    const Ends ends =
        run(tasks, plan, at == 0 ? std::vector<Fault>{} : std::vector<Fault>{{victim, at, kind}});
    INFO("exchange " << at << " of " << last << ", process " << victim << ", kind "
                     << static_cast<int>(kind));
    for (std::size_t w = 0; w < tasks.founders(); ++w) {
      INFO("process " << w << ": " << ends.errors[w]);
      CHECK(ends.errors[w].empty());
      if (ends.have_ended[w]) CHECK((ends.found[w] == quiet));
      if (w != victim) CHECK(ends.have_ended[w]);
    }
    if (at == 0) last = ends.job->exchanges(victim);
  }
}

/// All roles, kinds of failures and ways to train.
void sweep_all(std::size_t stride) {
  const ls::UpdateOptions accumulates{
      .use_ema = true, .ema_overwrite_frequency = 2, .gradient_accumulation_steps = 2};
  const Tasks pairs{.workers = 2, .servers = 2}, three{.workers = 2, .servers = 3};
  const Tasks chief{.workers = 2, .servers = 3, .chief = true};
  // Servers of three are processes 2 to 4, of `chief` 3 to 5.
  sweep(three, {}, 0, Kind::dies_before, stride);
  sweep(three, {}, 2, Kind::dies_before, stride);
  sweep(three, {}, 3, Kind::dies_after, stride);
  sweep(three, {}, 4, Kind::fails_after, stride);
  sweep(three, {}, 1, Kind::fails_after, stride);
  sweep(chief, {.with = {.global_clipnorm = 0.05}}, 0, Kind::dies_after, stride);
  sweep(chief, {.with = {.global_clipnorm = 0.05}}, 3, Kind::dies_before, stride);
  sweep(chief, {.with = {.global_clipnorm = 0.05}}, 4, Kind::fails_after, stride);
  sweep(chief, {.with = {.clipnorm = 0.1}}, 5, Kind::dies_after, stride);
  sweep(three, {.with = accumulates}, 4, Kind::dies_before, stride);
  sweep(pairs, {.with = accumulates}, 3, Kind::dies_after, stride);
  sweep(pairs, {.with = accumulates}, 2, Kind::fails_after, stride);
  sweep(three, {.way = 1}, 3, Kind::dies_before, stride);
  sweep(three, {.way = 1}, 4, Kind::fails_after, stride);
  sweep(three, {.with = {.use_ema = true}, .way = 2}, 2, Kind::dies_after, stride);
  sweep(three, {.with = {.use_ema = true}, .way = 2}, 3, Kind::fails_after, stride);
  sweep(three, {.with = {.use_ema = true}, .way = 2}, 1, Kind::fails_after, stride);
  sweep(chief, {.epochs = 3, .steps_per_execution = 3}, 5, Kind::dies_before, stride);
  sweep(chief, {.epochs = 3, .steps_per_execution = 3}, 4, Kind::fails_after, stride);
  // Without a second owner, as long as none dies.
  const Tasks single{.workers = 2, .servers = 3, .copies = 1};
  sweep(single, {}, 3, Kind::fails_after, stride);
  sweep(single, {.with = accumulates}, 4, Kind::fails_after, stride);
  sweep(single, {.with = {.use_ema = true}, .way = 2}, 2, Kind::fails_after, stride);
  sweep(single, {.way = 1}, 2, Kind::fails_after, stride);
  sweep(single, {.with = {.global_clipnorm = 0.05}}, 0, Kind::dies_after, stride);
  sweep(single, {}, 1, Kind::dies_before, stride);
  // Workers make steps, or slices of steps, alone.
  const Tasks steps{.workers = 2, .servers = 3, .phases = true};
  const Tasks slices{.workers = 3, .servers = 2, .chief = true, .phases = true, .backups = 1};
  for (const std::size_t victim : {0u, 2u, 4u}) sweep(steps, {}, victim, Kind::dies_before, stride);
  sweep(steps, {.with = accumulates}, 1, Kind::fails_after, stride);
  sweep(steps, {.epochs = 3, .steps_per_execution = 3}, 3, Kind::dies_after, stride);
  for (const std::size_t victim : {0u, 2u, 5u}) sweep(slices, {}, victim, Kind::dies_after, stride);
  sweep(slices, {.with = {.global_clipnorm = 0.05}}, 4, Kind::fails_after, stride);
  // All workers own shares.
  const Tasks owners{.workers = 3, .servers = 0}, two{.workers = 2, .servers = 0};
  sweep(owners, {}, 0, Kind::dies_before, stride);
  sweep(owners, {}, 1, Kind::dies_after, stride);
  sweep(owners, {}, 2, Kind::fails_after, stride);
  sweep(two, {.with = {.global_clipnorm = 0.05}}, 0, Kind::dies_after, stride);
  sweep(owners, {.with = {.clipnorm = 0.1}}, 2, Kind::dies_before, stride);
  sweep(owners, {.with = accumulates}, 1, Kind::fails_after, stride);
  sweep(two, {.with = accumulates}, 1, Kind::dies_before, stride);
  sweep(owners, {.way = 1}, 1, Kind::dies_before, stride);
  sweep(owners, {.with = {.use_ema = true}, .way = 2}, 0, Kind::dies_after, stride);
  sweep(owners, {.epochs = 3, .steps_per_execution = 3}, 1, Kind::dies_before, stride);
  const Tasks alone{.workers = 3, .servers = 0, .copies = 1};
  sweep(alone, {.with = accumulates}, 1, Kind::fails_after, stride);
  const testing::Folder folder;
  const std::string path = (folder.path() / "run").string();
  sweep(owners, {.folder = path}, 1, Kind::dies_after, stride);
  sweep(three, {.folder = path}, 0, Kind::dies_after, stride);
  sweep(three, {.folder = path}, 3, Kind::dies_before, stride);
  sweep(three, {.folder = path}, 4, Kind::fails_after, stride);
}

/// The weights of an end.
std::vector<double> digest_of(const std::vector<double>& found) {
  constexpr std::size_t digits = 64;
  return {found.end() - digits, found.end()};
}

/// Random faults, also at once and while the others recover, and processes of all roles that join.
void disturb(std::uint32_t first, std::uint32_t count) {
  std::size_t generations = 0, joined = 0;
  for (std::uint32_t seed = first; seed < first + count; ++seed) {
    std::mt19937 draw(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(draw() % n); };
    Tasks tasks{.workers = 1 + below(3), .servers = 2 + below(3), .chief = below(3) == 0};
    tasks.copies = 1 + below(std::min<std::size_t>(tasks.servers, 3));
    const bool are_owners = below(3) == 0;  // all workers
    if (are_owners) tasks = {.workers = 2 + below(3), .servers = 0, .copies = 1 + below(3)};
    Short plan{.way = static_cast<int>(below(3))};
    plan.with.use_ema = plan.way == 2 || below(3) == 0;
    if (below(3) == 0) plan.with.gradient_accumulation_steps = 2;
    if (below(3) == 0) plan.with.global_clipnorm = 0.05;
    for (std::size_t i = below(3); i > 0; --i)
      tasks.newcomers.emplace_back(!are_owners && below(2) == 0, 1 + below(300));
    // A worker stays, and so do all but one owner of each range.
    const std::size_t first_server = are_owners ? 0 : tasks.founders() - tasks.servers;
    std::vector<Fault> faults;
    std::size_t at = 1 + below(80);
    bool a_server_dies = false;
    for (std::size_t i = below(4); i > 0; --i) {
      if (below(2) == 0) at = 1 + below(80);
      const std::size_t victim = 1 + below(tasks.founders() - 1);
      auto kind = static_cast<Kind>(below(3));
      const bool serves = victim >= first_server;
      const bool is_spared = !are_owners && victim == (tasks.chief ? 1u : 0u);
      if ((serves && (a_server_dies || tasks.copies == 1)) || is_spared) kind = Kind::fails_after;
      a_server_dies = a_server_dies || (serves && kind != Kind::fails_after);
      faults.push_back({victim, at, kind});
    }
    CAPTURE(seed, tasks.workers, tasks.servers, tasks.copies, tasks.chief, plan.way,
            plan.with.use_ema, plan.with.gradient_accumulation_steps, plan.with.global_clipnorm);
    const std::vector<double> quiet = plan(ls::OneDevice<Float>{.virtual_shards = 8});
    const Ends ends = run(tasks, plan, faults);
    for (std::size_t w = 0; w < ends.found.size(); ++w) {
      INFO("process " << w << ": " << ends.errors[w]);
      CHECK(ends.errors[w].empty());
      if (!ends.have_ended[w] || ends.found[w].empty()) continue;
      if (w < tasks.founders())
        CHECK((ends.found[w] == quiet));
      else
        CHECK((digest_of(ends.found[w]) == digest_of(quiet)));
      joined += w < tasks.founders() ? 0u : 1u;
    }
    CHECK(ends.have_ended[0]);
    generations += ends.job->generations();
  }
  CAPTURE(generations, joined);
  if (count == 1) return;
  CHECK(generations > count / 2);
  CHECK(joined > count / 4);
}

}  // namespace

TEST_CASE("a process of a job with servers fails, and the others get the bits of a quiet run") {
  sweep_all(11);
}
TEST_CASE("a process of a job with servers fails at any exchange", "[.slow]") { sweep_all(1); }

TEST_CASE("processes of all roles fail and join at random") {
  disturb(1, 40);
  disturb(1460, 1);
}
TEST_CASE("processes of all roles fail and join at random in thousands of jobs", "[.slow]") {
  disturb(1000, 5000);
}

TEST_CASE("the loss of the last owner of a range ends all processes with one sentence") {
  const std::vector<double> quiet = Short{}(ls::OneDevice<Float>{.virtual_shards = 8});
  for (const std::size_t servers : {0u, 1u, 3u}) {
    const Tasks tasks{.workers = 2, .servers = servers, .copies = 1};
    const std::size_t victim = servers == 0 ? 1 : 2 + servers / 2;
    std::size_t ends_alike = 0, last = 1;
    for (std::size_t at = 0; at < last; at += at == 0 ? 1 : 9) {
      const Ends ends = run(tasks, {}, {{victim, at, Kind::dies_before}});
      if (at == 0) last = ends.job->exchanges(victim);
      CAPTURE(servers, at);
      const bool has_lost = ends.errors[0].find("is the last owner") != std::string::npos;
      for (std::size_t w = 0; w < tasks.founders(); ++w) {
        if (w == victim && at > 0) continue;
        INFO(ends.errors[w]);
        CHECK(ends.errors[w] == ends.errors[0]);
        if (!has_lost) CHECK((ends.found[w] == quiet));
      }
      if (has_lost) ++ends_alike;
    }
    CHECK(ends_alike > 5);
  }
}

TEST_CASE("two owners of a range that are lost at once end all processes") {
  const Tasks tasks{.workers = 2, .servers = 3, .copies = 2};
  const Ends ends = run(tasks, {}, {{2, 40, Kind::dies_before}, {3, 40, Kind::dies_before}});
  for (const std::size_t w : {0u, 1u, 4u})
    CHECK_THAT(ends.errors[w], ContainsSubstring("is the last owner"));
}
