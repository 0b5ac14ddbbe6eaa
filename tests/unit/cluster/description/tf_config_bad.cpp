#include <catch2/catch_test_macros.hpp>
#include <string>

#include "lockstep/cluster/description/tf_config.hpp"
#include "lockstep/cluster/resolve.hpp"
#include "unit/cluster/support.hpp"

namespace {

struct Row {
  std::string text, fragment;
};

const std::string two = R"("worker":["a:1","b:1"])";
std::string cluster(const std::string& value) {
  return R"({"cluster":)" + value + R"(,"task":{"type":"worker","index":0}})";
}
std::string task(const std::string& value) {
  return R"({"cluster":{"worker":["a:1","b:1"]},"task":)" + value + "}";
}
std::string index(const std::string& value) {
  return task(R"({"type":"worker","index":)" + value + "}");
}
std::string type(const std::string& value) { return task(R"({"index":0,"type":)" + value + "}"); }
std::string repeated(const std::string& part, std::size_t times) {
  std::string result;
  for (std::size_t i = 0; i < times; ++i) result += part;
  return result;
}

const Row syntax[] = {
    {"{'cluster': {'worker': ['a:1', 'b:1']}, 'task': {'type': 'worker', 'index': 0}}",
     "is not valid JSON at byte 2, before \"'cluster': {'worker': ['\": it has single quotes, as "
     "in a printed Python dict; use double quotes, in Python with json.dumps"},
    {R"({"cluster": {'worker': ["a:1"]}})", "it has single quotes, as in a printed Python dict"},
    {R"({"cluster": {"worker": ['a:1']}})", "it has single quotes"},
    {R"('{"cluster":{"worker":["a:1"]}}')", "it begins with a single quote, which the shell"},
    {R"("{\"cluster\":{\"worker\":[\"a:1\"]}}")",
     "is a string that contains JSON; remove the outer quotes"},
    {R"({\"cluster\":{\"worker\":[\"a:1\"]}})", "its quotes are escaped; remove the backslashes"},
    {"{cluster:{worker:[a:1]},task:{type:worker,index:0}}",
     "it has no double quotes, perhaps because the shell removed them"},
    {"{\xE2\x80\x9C"
     "cluster\xE2\x80\x9D:{}}",
     "it has typographic quotes"},
    {"\xEF\xBB\xBF{}", "begins with a byte order mark; save it as UTF-8 without one"},
    {cluster("{" + two + ",}"), "it has a comma before a closing bracket"},
    {cluster(R"({"worker":["a:1",]})"), "it has a comma before a closing bracket"},
    {cluster(R"({"worker":["a:1", ]})"), "it has a comma before a closing bracket"},
    {R"({"cluster":{"worker":["a:1"]},})", "it has a comma before a closing bracket"},
    {R"({"cluster":{"worker":["a:1"]}, "task":None})", "it has a Python literal"},
    {R"({"x":True,"cluster":{"worker":["a:1"]}})", "it has a Python literal; write null, true"},
    {R"({"x":False})", "it has a Python literal"},
    {R"({// a comment
"cluster":{"worker":["a:1"]}})",
     "it has a comment, which JSON does not allow"},
    {R"({"cluster":{} # none
})",
     "it has a comment"},
    {R"({"cluster":{}/* */})", "it has a comment"},
    {"/etc/tf_config.json", "it looks like a file name"},
    {"./config", "it looks like a file name"},
    {"cluster.json", "lockstep::read_cluster_file"},
    {"{", "not valid JSON at byte 2, at its end"},
    {R"({"cluster":{"worker":["a:1"]})",
     "it ends too early; a closing bracket or quote is missing"},
    {R"({"cluster":{"worker":["a:1")", "it ends too early"},
    {R"({"cluster":{"worker":["a:1)", "is not valid JSON at byte"},
    {R"({"cluster")", "it ends too early"},
    {R"({"cluster":)", "it ends too early"},
    {R"({"cluster":{"worker":["a:1"]}}})", "is not valid JSON at byte 31, before \"}\""},
    {R"({"cluster":{"worker":["a:1"]}} {})", "is not valid JSON at byte 32"},
    {R"({"cluster":{"worker":["a:1"]}}x)", "is not valid JSON at byte 31, before \"x\""},
    {R"({"cluster" {"worker":["a:1"]}})", "is not valid JSON at byte 12"},
    {R"({"cluster"={"worker":["a:1"]}})", "is not valid JSON at byte 11, before \"={"},
    {R"({"cluster":{"worker":["a:1" "b:1"]}})", "is not valid JSON at byte 29, before \"\"b:1\""},
    {R"({"cluster":{"worker":["a:1";"b:1"]}})", "is not valid JSON"},
    {R"({"cluster":{"worker":("a:1","b:1")}})", "is not valid JSON"},
    {R"({"cluster":{"worker":["a:1"]}])", "is not valid JSON"},
    {R"({"cluster":{"worker":["a:1"}})", "is not valid JSON"},
    {R"({"a\x":1})", "is not valid JSON"},
    {R"({"\ud800":1})", "is not valid JSON"},
    {R"({"\udc00":1})", "TF_CONFIG has a string with an unpaired surrogate at byte 10, before"},
    {R"({"x":1e-999})", "TF_CONFIG has a number that does not fit 64 bits at byte"},
    {"{\"a\":\"\x01\"}", "is not valid JSON"},
    {"{\"\xC3\x28\":1}", "is not valid JSON"},
    {"{\"\xFF\":1}", "is not valid JSON"},
    {"{\"\xC0\xAF\":1}", "is not valid JSON"},
    {R"({"x":01})", "is not valid JSON"},
    {R"({"x":.5})", "is not valid JSON"},
    {R"({"x":1.})", "is not valid JSON"},
    {R"({"x":1e999})", "is not valid JSON"},
    {R"({"x":+1})", "is not valid JSON"},
    {R"({"x":NaN})", "is not valid JSON"},
    {R"({"x":0x10})", "is not valid JSON"},
    {std::string("{}\0{}", 5), "contains a NUL byte"},
    {std::string("\0", 1), "contains a NUL byte"},
    {std::string(1'100'000, 'x'), "has 1100000 bytes; the maximum is 1048576"},
    {"{\"x\":\"" + std::string(1'048'576, 'x') + "\"}", "the maximum is 1048576"},
    {repeated("[", 500'000), "is not valid JSON"},
    {repeated("{\"a\":", 150'000), "is not valid JSON"},
    {repeated("[", 100'000) + repeated("]", 100'000), "is a list; write an object"},
    {"worker", "is not valid JSON"},
    {"\x1b[31m", "before \"\\x1b[31m\""},
    {"null", "is null; write an object"},
    {"true", "is a boolean; write an object"},
    {"0", "is a number; write an object"},
    {"[]", "is a list; write an object"},
    {R"("worker")", "is a string; write an object"},
    {R"([{"cluster":{"worker":["a:1"]}}])", "is a list; write an object"},
};

const Row clusters[] = {
    {cluster("null"), R"(cluster is null; write an object: {"worker":["host:port"]})"},
    {cluster("1"), "cluster is a number"},
    {cluster("true"), "cluster is a boolean"},
    {cluster(R"("a:1")"), "cluster is a string"},
    {cluster(R"(["a:1"])"), "cluster is a list"},
    {cluster(R"({"worker":"a:1"})"), R"(cluster.worker is a string; write a list: ["a:1"])"},
    {cluster(R"({"worker":1})"), "cluster.worker is a number; write a list"},
    {cluster(R"({"worker":null})"), "cluster.worker is null"},
    {cluster(R"({"worker":false})"), "cluster.worker is a boolean"},
    {cluster(R"({"worker":[]})"), "cluster.worker is empty; list its hosts"},
    {cluster(R"({"worker":{}})"), "cluster.worker is empty"},
    {cluster(R"({"chief":[],"worker":["a:1"]})"), "cluster.chief is empty"},
    {cluster(R"({"chief":["c:1","d:1"],"worker":["a:1"]})"),
     "cluster.chief has more than one host; a cluster has one chief, list the others as worker"},
    {cluster(R"({"evaluator":["c:1","d:1"],"worker":["a:1"]})"),
     "cluster.evaluator has more than one host"},
    {cluster("{" + two + "," + two + "}"), R"(cluster has the key "worker" twice)"},
    {R"({"cluster":{"worker":["a:1"]},"cluster":{"worker":["a:1"]}})",
     R"(TF_CONFIG has the key "cluster" twice)"},
    {R"({"cluster":{"worker":["a:1"]},"sparseCluster":{"worker":["a:1"]}})",
     R"(has both "cluster" and "sparseCluster")"},
    {cluster(R"({"chief":["a:1"],"worker":["a:1"]})"),
     R"(cluster.worker[0] "a:1" is also chief[0])"},
    {cluster(R"({"worker":["a:1","b:1","A:1"]})"), R"(cluster.worker[2] "A:1" is also worker[0])"},
    {cluster(R"({"worker":["[::1]:1","[0:0:0:0:0:0:0:1]:1"]})"), "is also worker[0]"},
    {cluster(R"({"worker":["a:1"],"evaluator":["a:1"]})"),
     R"(cluster.evaluator[0] "a:1" is also worker[0])"},
    {cluster(R"({"workers":["a:1"]})"),
     R"(TF_CONFIG: cluster: the key "workers" is not a task type; write "worker")"},
    {cluster(R"({"Worker":["a:1"]})"), R"("Worker" is not a task type; write "worker")"},
    {cluster(R"({"CHIEF":["a:1"]})"), R"(write "chief")"},
    {cluster(R"({"master":["a:1"]})"), R"("master" is not a task type; write "chief")"},
    {cluster(R"({"leader":["a:1"]})"),
     "TF_CONFIG: cluster has no chief and no worker; list at least one worker"},
    {cluster(R"({"":["a:1"]})"), "cluster has no chief and no worker"},
    {cluster("{" + two + R"(,"worker ":["a:1"]})"),
     R"("worker " is not a task type; write "worker")"},
    {cluster("{" + two + R"(,"work\u001ber":["a:1"]})"),
     R"("work\x1ber" is not a task type; write "worker")"},
    {cluster("{" + two + R"(,"wroker":["c:1"]})"),
     R"("wroker" is not a task type; write "worker")"},
    {cluster("{" + two + R"(,"cheif":["c:1"]})"), R"("cheif" is not a task type; write "chief")"},
    {cluster("{" + two + R"(,"evaluater":["c:1"]})"), R"(write "evaluator")"},
    {cluster("{" + two + R"(,"evaluator":["c"]})"), R"(cluster.evaluator[0] "c" has no port)"},
    {cluster(R"({"cluster":{"worker":["a:1"]}})"), R"(has the key "cluster"; it must hold only)"},
    {cluster(R"({"worker":["a:1"],"task":{"type":"worker"}})"), R"(has the key "task")"},
    {R"({"worker":["a:1"]})", R"(has the key "worker" outside of "cluster")"},
    {R"({"chief":["a:1"],"task":{"type":"chief","index":0}})", R"("chief" outside of "cluster")"},
    {R"({"clusters":{"worker":["a:1"]}})", R"(has the key "clusters"; write "cluster")"},
    {R"({"Cluster":{"worker":["a:1"]}})", R"(has the key "Cluster"; write "cluster")"},
    {R"({"cluster":{"worker":["a:1"]},"Task":{}})", R"(has the key "Task"; write "task")"},
    {R"({"cluster":{"worker":["a:1"]},"tasks":{}})", R"(has the key "tasks"; write "task")"},
    // Maps from index to host.
    {cluster(R"({"worker":{"0":"a:1","2":"b:1"}})"),
     "cluster.worker has the index 2 but not 1; lockstep needs every worker's address"},
    {cluster(R"({"worker":{"1":"b:1"}})"), "cluster.worker has the index 1 but not 0"},
    {cluster(R"({"worker":{"4000000000":"b:1"}})"), "has the index 4000000000 but not 0"},
    {cluster(R"({"worker":{"99999999999":"b:1"}})"),
     R"(has the key "99999999999", which is not an index)"},
    {cluster(R"({"worker":{"-1":"b:1"}})"), R"(has the key "-1", which is not an index)"},
    {cluster(R"({"worker":{"00":"b:1"}})"), R"(has the key "00", which is not an index)"},
    {cluster(R"({"worker":{"0":"b:1","0":"c:1"}})"), R"(cluster.worker has the key "0" twice)"},
    {cluster(R"({"worker":{"a":"b:1"}})"), R"(has the key "a", which is not an index)"},
    {cluster(R"({"worker":{"0.0":"b:1"}})"), R"(has the key "0.0", which is not an index)"},
    {cluster(R"({"worker":{"":"b:1"}})"), R"(has the key "", which is not an index)"},
    {cluster(R"({"worker":{"0":"a:1","1":"b"}})"), R"(cluster.worker[1] "b" has no port)"},
    {cluster(R"({"worker":{"0":["a:1"]}})"), "cluster.worker[0] is a list"},
    {R"({"sparseCluster":{"worker":{"1":"b:1"}},"task":{"type":"worker","index":1}})",
     "sparseCluster.worker has the index 1 but not 0"},
    // Jobs that cannot train synchronously.
    {cluster(R"({"ps":["p:1"]})"), "cluster has no chief and no worker"},
    {cluster(R"({"evaluator":["e:1"]})"), "cluster has no chief and no worker"},
    {cluster("{}"), R"(TF_CONFIG has no "cluster")"},
    {R"({"task":{"type":"worker","index":0}})", R"(TF_CONFIG has no "cluster"; write {"cluster")"},
    {R"({"environment":"cloud"})", R"(TF_CONFIG has no "cluster")"},
};

const Row tasks[] = {
    {R"({"cluster":{"worker":["a:1","b:1"]}})", "no task for this process"},
    {task("null"), R"(task is null; write an object: {"type":"worker","index":0})"},
    {task("0"), "task is a number"},
    {task(R"("worker:0")"), "task is a string"},
    {task("[]"), "task is a list"},
    {task("{}"), "task has no type"},
    {task(R"({"index":0})"), "task has no type"},
    {task(R"({"type":"worker"})"), R"(task has no index; write {"type":"worker","index":0})"},
    {task(R"({"type":"worker","id":0})"), "task has no index"},
    {task(R"({"type":"worker","Index":0})"), R"(task has the key "Index"; write "index")"},
    {task(R"({"Type":"worker","index":0})"), R"(task has the key "Type"; write "type")"},
    {task(R"({"types":"worker","index":0})"), R"(write "type")"},
    {task(R"({"type":"worker","index":0,"index":1})"), R"(task has the key "index" twice)"},
    {task(R"({"type":"worker","type":"worker","index":1})"), R"(task has the key "type" twice)"},
    {index("2"), "task.index 2 is out of range: cluster.worker has 2 hosts; write 0 to 1"},
    {index("4294967296"), "task.index 4294967296 is out of range"},
    {index("18446744073709551615"), "task.index 18446744073709551615 is out of range"},
    {index("18446744073709551616"),
     "task.index is a number with a fraction or an exponent, or too large"},
    {index("-1"), "task.index is -1; write a non-negative integer"},
    {index("-9223372036854775808"), "task.index is -9223372036854775808"},
    {index("0.0"), "task.index is a number with a fraction"},
    {index("0.5"), "task.index is a number with a fraction"},
    {index("1e0"), "task.index is a number with a fraction or an exponent"},
    {index("-0.0"), "task.index is a number with a fraction"},
    {index("null"), R"(task.index is null; write a non-negative integer, or "auto")"},
    {index("true"), "task.index is a boolean"},
    {index("[0]"), "task.index is a list"},
    {index("{}"), "task.index is an object"},
    {index(R"("")"), R"(task.index is ""; write a non-negative integer)"},
    {index(R"("two")"), R"(task.index is "two")"},
    {index(R"("-1")"), R"(task.index is "-1")"},
    {index(R"("+1")"), R"(task.index is "+1")"},
    {index(R"(" 1")"), R"(task.index is " 1")"},
    {index(R"("1.0")"), R"(task.index is "1.0")"},
    {index(R"("0x1")"), R"(task.index is "0x1")"},
    {index(R"("2")"), "task.index 2 is out of range"},
    {index(R"("9999999999")"), R"(task.index is "9999999999")"},
    {index(R"("Auto")"), R"(task.index is "Auto"; write a non-negative integer, or "auto")"},
    {index(R"("\u0000")"), R"(task.index is "\x00")"},
    {type("null"), R"(task.type is null; write "worker" or "chief")"},
    {type("0"), "task.type is a number"},
    {type(R"(["worker"])"), "task.type is a list"},
    {type("{}"), "task.type is an object"},
    {type(R"("")"), R"(task.type "" is not a task type)"},
    {type(R"("workers")"), R"(task.type "workers" is not a task type; write "worker")"},
    {type(R"("WORKER")"), R"(task.type "WORKER" is not a task type; write "worker")"},
    {type(R"("master")"), R"(task.type "master" is not a task type; write "chief")"},
    {type(R"("slave")"), R"(task.type "slave" is not a task type; the types are)"},
    {type(R"("chief")"), R"(task.type is chief, but cluster has no chief; write "worker")"},
    {type(R"("evaluator")"), "task.type is evaluator: an evaluator runs separately"},
    {type(R"("ps")"), "task.type is ps: parameter servers need the strategy ls::ParameterServer"},
    {R"({"cluster":{"worker":["a:1"],"ps":["p:1"]},"task":{"type":"ps","index":0}})",
     "TF_CONFIG: task.type is ps: parameter servers need the strategy ls::ParameterServer; start this "
     "process as a worker, or start a program with that strategy"},
    {R"({"task":{"type":"tester","index":0},"cluster":{"worker":["a:1"],"tester":["t:1"]}})",
     R"(TF_CONFIG: task.type is "tester", a job that takes no part in training; start this process )"
     "without MultiWorkerMirrored, or as a worker"},
    {R"({"task":{"type":"tester","index":0},"cluster":{"worker":["a:1"]}})",
     R"(task.type "tester" is not a task type; the types are)"},
    {R"({"cluster":{"chief":["a:1"]},"task":{"type":"worker","index":0}})",
     R"(task.type is worker, but cluster has no worker; write "chief")"},
    {R"({"cluster":{"chief":["a:1"],"worker":["b:1"]},"task":{"type":"chief","index":1}})",
     "task.index 1 is out of range: cluster.chief has 1 host; write 0"},
    {R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":"auto"}})",
     "task.index is auto for the only worker"},
    {R"({"cluster":{"worker":["a:1"],"evaluator":["e:1"]},"task":{"type":"evaluator","index":0}})",
     "task.type is evaluator"},
};

template <std::size_t n>
void check(const Row (&rows)[n]) {
  for (const Row& row : rows) {
    CAPTURE(row.text.substr(0, 200));
    const auto resolve = [&] {
      lockstep::resolve_cluster(cluster_test::environment({{"TF_CONFIG", row.text}}));
    };
    const std::string message = cluster_test::sentence(resolve);
    CAPTURE(message);
    CHECK(message.find("TF_CONFIG") != std::string::npos);
    CHECK(message.find(row.fragment) != std::string::npos);
    CHECK(message.find("; ") != std::string::npos);
    CHECK(cluster_test::fit_to_print(message));
  }
}

}  // namespace

TEST_CASE("a TF_CONFIG that is not JSON is refused with the likely mistake") { check(syntax); }
TEST_CASE("a TF_CONFIG with an invalid cluster is refused by path") { check(clusters); }
TEST_CASE("a TF_CONFIG with an invalid task is refused by path") { check(tasks); }

TEST_CASE("the tables of invalid TF_CONFIGs keep their size") {
  STATIC_CHECK(std::size(syntax) + std::size(clusters) + std::size(tasks) >= 170);
}
