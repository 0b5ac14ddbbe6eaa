#include "archetypes/archetypes.hpp"

#include <catch2/catch_test_macros.hpp>
#include <type_traits>

// Each negative case violates one requirement of a concept by hiding one member of the archetype: a
// function or value by a type of the same name, a type by a private one.
namespace {

namespace ls = lockstep;
namespace a = archetype;

// Op
static_assert(ls::Op<a::ScaleOp>);
struct OpWithoutOut : a::ScaleOp {
  struct out;
};
struct OpWithoutEquality {
  constexpr ls::Shape out() const { return {}; }
};
static_assert(!ls::Op<OpWithoutOut> && !ls::Op<OpWithoutEquality>);

// Layer
static_assert(ls::Layer<a::Scale>);
struct LayerWithoutName : a::Scale {
  struct name;
};
struct LayerWithoutAccepts : a::Scale {
  struct accepts;
};
struct LayerWithoutParameters : a::Scale {
  struct parameters;
};
struct LayerWithoutOp : a::Scale {
  struct op;
};
struct LayerWithOpThatIsNone : a::Scale {
  static constexpr int op(ls::Shape) { return 0; }
};
static_assert(!ls::Layer<LayerWithoutName> && !ls::Layer<LayerWithoutAccepts> &&
              !ls::Layer<LayerWithoutParameters> && !ls::Layer<LayerWithoutOp> &&
              !ls::Layer<LayerWithOpThatIsNone>);

// JoinRule
static_assert(ls::JoinRule<a::Join> && !ls::JoinRule<a::Scale>);
struct JoinWithoutName : a::Join {
  struct name;
};
struct JoinWithoutAccepts : a::Join {
  struct accepts;
};
struct JoinWithoutOp : a::Join {
  struct op;
};
static_assert(!ls::JoinRule<JoinWithoutName> && !ls::JoinRule<JoinWithoutAccepts> &&
              !ls::JoinRule<JoinWithoutOp>);

// Kernel
static_assert(ls::HasKernel<a::ScaleOp, a::Device> && !ls::HasKernel<OpWithoutOut, a::Device>);
static_assert(!ls::HasKernel<a::ScaleOp, int>);

// Collective
static_assert(ls::Collective<a::Group> && ls::AllReduces<a::Group, float> &&
              ls::AllReduces<a::Group, double> && ls::Broadcasts<a::Group, float>);
static_assert(!ls::Broadcasts<a::Group, double>);
struct GroupWithoutRank : a::Group {
  struct rank;
};
struct GroupWithoutSize : a::Group {
  struct size;
};
struct GroupWithoutAbort : a::Group {
  struct abort;
};
struct GroupWithoutAllReduce : a::Group {
  struct all_reduce;
};
struct GroupOfFloats : a::Group {
  void all_reduce(float*, std::size_t) {}
};
static_assert(!ls::Collective<GroupWithoutRank> && !ls::Collective<GroupWithoutSize> &&
              !ls::Collective<GroupWithoutAbort>);
static_assert(ls::Collective<GroupWithoutAllReduce> &&
              !ls::AllReduces<GroupWithoutAllReduce, float>);
static_assert(!ls::AllReduces<GroupOfFloats, double>);
static_assert(std::is_constructible_v<ls::CollectiveRef, a::Group&> &&
              !std::is_constructible_v<ls::CollectiveRef, GroupOfFloats&>);
struct GroupWithoutAllGather : a::Group {
  struct all_gather;
};
struct GroupWithoutBroadcast : a::Group {
  struct broadcast;
};
struct GroupWithoutBarrier : a::Group {
  struct barrier;
};
struct GroupWithoutSums : a::Group {
  void all_reduce(float*, std::size_t) {}
  void all_reduce(double*, std::size_t) {}
};
static_assert(ls::AllGathers<a::Group, std::byte> && ls::Barriers<a::Group> &&
              ls::AllReducesWithSums<a::Group, float>);
static_assert(!ls::AllGathers<GroupWithoutAllGather, std::byte> &&
              !ls::Barriers<GroupWithoutBarrier> &&
              !ls::AllReducesWithSums<GroupWithoutSums, float>);
static_assert(!std::is_constructible_v<ls::CollectiveRef, GroupWithoutAllGather&> &&
              !std::is_constructible_v<ls::CollectiveRef, GroupWithoutBroadcast&>);

// GradientExchange
struct ExchangeWithoutPost : a::Exchange {
  struct post;
};
struct ExchangeWithoutFinish : a::Exchange {
  struct finish;
};
static_assert(ls::ExchangesGradients<a::Exchange, float> &&
              !ls::ExchangesGradients<ExchangeWithoutPost, float> &&
              !ls::ExchangesGradients<ExchangeWithoutFinish, float>);

// Device
static_assert(ls::DeviceContext<a::Context, float> && ls::Device<a::Device>);
static_assert(!ls::HostDevice<a::Device>);
template <class C>
inline constexpr bool is_context = ls::DeviceContext<C, float>;
struct WithoutAllocate : a::Context {
  struct allocate;
};
struct WithoutRelease : a::Context {
  struct release;
};
struct WithoutUpload : a::Context {
  struct upload;
};
struct WithoutDownload : a::Context {
  struct download;
};
struct WithoutCopy : a::Context {
  struct copy;
};
struct WithoutClear : a::Context {
  struct clear;
};
struct WithoutFeed : a::Context {
  struct feed;
};
struct WithoutLabels : a::Context {
  const float* feed(int, const float* p, std::size_t) { return p; }
};
struct WithoutAdd : a::Context {
  struct add;
};
struct WithoutThreads : a::Context {
  struct threads;
};
struct WithoutSynchronize : a::Context {
  struct synchronize;
};
struct WithoutScope : a::Context {
  struct scope;
};
static_assert(!is_context<WithoutAllocate> && !is_context<WithoutRelease> &&
              !is_context<WithoutUpload> && !is_context<WithoutDownload> &&
              !is_context<WithoutCopy> && !is_context<WithoutClear> && !is_context<WithoutFeed> &&
              !is_context<WithoutLabels> && !is_context<WithoutAdd> &&
              !is_context<WithoutThreads> && !is_context<WithoutSynchronize> &&
              !is_context<WithoutScope>);
struct DeviceWithoutReal : a::Device {
 private:
  using real = void;
};
struct DeviceWithoutContext : a::Device {
 private:
  using Context = void;
};
struct DeviceWithoutFusions : a::Device {
 private:
  using fusions = void;
};
struct DeviceWithoutName : a::Device {
  struct name;
};
struct DeviceWithoutPrecision : a::Device {
  struct precision;
};
struct DeviceWithoutOpen : a::Device {
  struct open;
};
struct DeviceThatOpensAnother : a::Device {
  WithoutAdd open(std::size_t, std::size_t) const { return {}; }
};
static_assert(!ls::Device<DeviceWithoutReal> && !ls::Device<DeviceWithoutContext> &&
              !ls::Device<DeviceWithoutFusions> && !ls::Device<DeviceWithoutName> &&
              !ls::Device<DeviceWithoutPrecision> && !ls::Device<DeviceWithoutOpen> &&
              !ls::Device<DeviceThatOpensAnother>);

// Loss
static_assert(ls::Loss<a::Squares>);
struct LossWithoutTarget : a::Squares {
 private:
  using target_type = void;
};
struct LossWithoutName : a::Squares {
  struct name;
};
struct LossWithoutAccepts : a::Squares {
  struct accepts;
};
struct LossWithoutTargetShape : a::Squares {
  struct target_shape;
};
struct LossWithoutOp : a::Squares {
  struct op;
};
struct LossThatStays : a::Squares {
  LossThatStays(const LossThatStays&) = delete;
};
static_assert(!ls::Loss<LossWithoutTarget> && !ls::Loss<LossWithoutName> &&
              !ls::Loss<LossWithoutAccepts> && !ls::Loss<LossWithoutTargetShape> &&
              !ls::Loss<LossWithoutOp> && !ls::Loss<LossThatStays>);

// Metric
static_assert(ls::Metric<a::Seen> && ls::MetricOf<a::Seen, float, ls::shape(1)>);
struct MetricWithoutName : a::Seen {
  struct name;
};
struct MetricWithoutState : a::Seen {
  struct state_size;
};
struct MetricWithoutResult : a::Seen {
  struct result;
};
struct MetricWithoutOp : a::Seen {
  struct op;
};
struct MetricOfLabels : a::Seen {
  template <class Target>
  static constexpr bool accepts(ls::Shape) {
    return std::is_same_v<Target, std::int32_t>;
  }
};
static_assert(!ls::Metric<MetricWithoutName> && !ls::Metric<MetricWithoutState> &&
              !ls::Metric<MetricWithoutResult>);
static_assert(!ls::MetricOf<MetricWithoutOp, float, ls::shape(1)> &&
              !ls::MetricOf<MetricOfLabels, float, ls::shape(1)> &&
              ls::MetricOf<MetricOfLabels, std::int32_t, ls::shape(1)>);

// Optimizer
static_assert(ls::Optimizer<a::Descent>);
struct OptimizerWithoutName : a::Descent {
  struct name;
};
struct OptimizerWithoutSlots : a::Descent {
  struct slot_count;
};
struct OptimizerWithoutSlotName : a::Descent {
  struct slot_name;
};
struct OptimizerWithoutRate : a::Descent {
  struct learning_rate;
};
struct OptimizerWithoutOp : a::Descent {
  struct op;
};
static_assert(!ls::Optimizer<OptimizerWithoutName> && !ls::Optimizer<OptimizerWithoutSlots> &&
              !ls::Optimizer<OptimizerWithoutSlotName> && !ls::Optimizer<OptimizerWithoutRate> &&
              !ls::Optimizer<OptimizerWithoutOp>);

// Dataset
static_assert(ls::IndexStream<a::Stream> && ls::Dataset<a::Points> &&
              ls::BatchedDataset<a::Batches> && !ls::BatchedDataset<a::Points>);
struct StreamOfInts {
  int next() { return 0; }
};
static_assert(!ls::IndexStream<StreamOfInts>);
struct DataWithoutFields : a::Points {
 private:
  using fields = void;
};
struct DataWithOddFields : a::Points {
  using fields = ls::FieldKind;
};
struct DataWithoutShape : a::Points {
  struct shape;
};
struct DataWithOneShape : a::Points {
  ls::Shape shape() const { return ls::shape(1); }
};
struct DataWithoutSize : a::Points {
  struct size;
};
struct DataWithoutIndices : a::Points {
  struct indices;
};
struct DataWithoutGather : a::Points {
  struct gather;
};
struct DataOfFloats : a::Points {  // cannot supply batches in double
  void gather(ls::Pass, std::span<const ls::Item>, ls::Rows<float, fields>) const {}
};
static_assert(!ls::Dataset<DataWithoutFields> && !ls::Dataset<DataWithOddFields> &&
              !ls::Dataset<DataWithoutShape> && !ls::Dataset<DataWithOneShape> &&
              !ls::Dataset<DataWithoutSize> && !ls::Dataset<DataWithoutIndices> &&
              !ls::Dataset<DataWithoutGather> && !ls::Dataset<DataOfFloats>);
struct BatchesWithoutSize : a::Batches {
  struct batch_size;
};
struct BatchesWithoutDepth : a::Batches {
  struct prefetch_depth;
};
static_assert(!ls::BatchedDataset<BatchesWithoutSize> && !ls::BatchedDataset<BatchesWithoutDepth>);
static_assert(ls::Dataset<a::Weighed> && ls::has_weights<a::Weighed> &&
              !ls::has_weights<a::Points>);

// Strategy
static_assert(ls::StrategySession<a::Session, a::Device> && ls::Strategy<a::Strategy>);
template <class S>
inline constexpr bool is_session = ls::StrategySession<S, a::Device>;
struct SessionWithoutEach : a::Session {
  struct each;
};
struct SessionWithoutLocal : a::Session {
  struct local_replicas;
};
struct SessionWithoutReplicas : a::Session {
  struct replicas;
};
struct SessionWithoutFirst : a::Session {
  struct first_replica;
};
struct SessionWithoutShards : a::Session {
  struct virtual_shards;
};
struct SessionWithoutAgree : a::Session {
  struct agree;
};
struct SessionWithoutNote : a::Session {
  struct note;
};
struct SessionWithoutEndEpoch : a::Session {
  struct end_epoch;
};
struct SessionWithoutFail : a::Session {
  struct fail;
};
struct SessionWithoutWorkers : a::Session {
  struct workers;
};
struct SessionWithoutRank : a::Session {
  struct rank;
};
struct SessionWithoutChief : a::Session {
  struct is_chief;
};
static_assert(!is_session<SessionWithoutEach> && !is_session<SessionWithoutLocal> &&
              !is_session<SessionWithoutReplicas> && !is_session<SessionWithoutFirst> &&
              !is_session<SessionWithoutShards> && !is_session<SessionWithoutAgree> &&
              !is_session<SessionWithoutNote> && !is_session<SessionWithoutEndEpoch> &&
              !is_session<SessionWithoutFail> && !is_session<SessionWithoutWorkers> &&
              !is_session<SessionWithoutRank> && !is_session<SessionWithoutChief>);
struct StrategyWithoutDevice : a::Strategy {
 private:
  using device = void;
};
struct StrategyOnNoDevice : a::Strategy {
  using device = int;
};
struct StrategyWithoutName : a::Strategy {
  struct name;
};
struct StrategyWithoutOpen : a::Strategy {
  struct open;
};
struct StrategyThatOpensNothing : a::Strategy {
  SessionWithoutEach open() const { return {}; }
};
static_assert(!ls::Strategy<StrategyWithoutDevice> && !ls::Strategy<StrategyOnNoDevice> &&
              !ls::Strategy<StrategyWithoutName> && !ls::Strategy<StrategyWithoutOpen> &&
              !ls::Strategy<StrategyThatOpensNothing>);

// Callback: all hooks are optional.
static_assert(std::is_default_constructible_v<a::Callback> && !std::is_abstract_v<a::Callback>);

}  // namespace

TEST_CASE("each concept accepts its archetype and rejects a type that misses one requirement") {
  SUCCEED("checked while compiling");
}
