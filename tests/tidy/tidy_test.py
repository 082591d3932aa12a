#!/usr/bin/env python3
"""The checks of tidy.py on small trees: each finds what it is for, and nothing in a clean tree."""

import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tidy  # noqa: E402

CLEAN = {
    "CMakeLists.txt": "add_subdirectory(allocator)\n",
    "allocator/CMakeLists.txt": "spillway_layer(allocator SOURCES a.cpp)  # not b.cpp\n",
    "allocator/a.h": "// What a is.\n#pragma once\n",
    "allocator/a.cpp": '#include "allocator/a.h"\n\n#include <vector>\n',
    "proxy/wire/CMakeLists.txt": "spillway_layer(wire SOURCES w.cpp)\n",
    "proxy/wire/w.h": "// What w is.\n#pragma once\n",
    "proxy/wire/w.cpp": '#include "proxy/wire/w.h"\n#include "allocator/a.h"\n',
    "README.md": "# T\n\nSee [a](allocator/a.h), `allocator/a.cpp` and `a/b or c`.\n",
}


class TidyTest(unittest.TestCase):
    def findings(self, changes=None):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**CLEAN, **(changes or {})}.items():
                whole = os.path.join(root, path)
                os.makedirs(os.path.dirname(whole), exist_ok=True)
                with open(whole, "w", encoding="utf-8") as file:
                    file.write(text)
            return tidy.run(root)

    def only_error(self, changes, expected):
        errors = self.findings(changes).errors
        self.assertEqual(len(errors), 1, errors)
        self.assertIn(expected, errors[0])

    def test_clean_tree_has_no_findings(self):
        findings = self.findings()
        self.assertEqual(findings.errors, [])

    def test_downward_include(self):
        self.only_error({"allocator/a.cpp": '#include "allocator/a.h"\n#include "proxy/wire/w.h"\n'},
                        "allocator/a.cpp:2: allocator may not include proxy/wire")

    def test_siblings_do_not_include_each_other(self):
        for one, other in (("catalog", "shard"), ("shard", "catalog")):
            self.only_error({
                f"proxy/{other}/x.h": "// X.\n#pragma once\n",
                f"proxy/{one}/CMakeLists.txt": "layer(y.cpp)\n",
                f"proxy/{one}/y.cpp": f'#include "proxy/{other}/x.h"\n',
            }, f"proxy/{one} may not include proxy/{other}")

    def test_upward_includes_are_allowed_for_all_layers_above(self):
        self.assertEqual(self.findings({
            "proxy/server/CMakeLists.txt": "layer(s.cpp)\n",
            "proxy/server/s.cpp": '#include "proxy/wire/w.h"\n#include "allocator/a.h"\n',
        }).errors, [])

    def test_include_that_does_not_name_its_layer(self):
        self.only_error({"proxy/wire/w.cpp": '#include "proxy/wire/w.h"\n#include "w.h"\n'},
                        'proxy/wire/w.cpp:2: "w.h" is no file')

    def test_layers_do_not_include_tests(self):
        self.only_error({
            "tests/support/t.h": "// T.\n#pragma once\n",
            "proxy/wire/w.cpp": '#include "proxy/wire/w.h"\n#include "tests/support/t.h"\n',
        }, '"tests/support/t.h" is in no layer')

    def test_tests_include_any_layer(self):
        self.assertEqual(self.findings({
            "tests/CMakeLists.txt": "t(t.cpp)\n",
            "tests/t.cpp": '#include "proxy/wire/w.h"\n#include <spdlog/spdlog.h>\n',
        }).errors, [])

    def test_a_test_may_include_its_neighbour_and_that_counts_as_use(self):
        self.assertEqual(self.findings({
            "tests/unit/CMakeLists.txt": "t(t.cpp)\n",
            "tests/unit/t.cpp": '#include "t_support.h"\n#include "absl/x.h"\n',
            "tests/unit/t_support.h": "// T.\n#pragma once\n",
        }).errors, [])

    def test_third_party_header_outside_its_door(self):
        self.only_error({"allocator/a.cpp": '#include "allocator/a.h"\n#include <yaml-cpp/yaml.h>\n'},
                        "allocator/a.cpp:2: <yaml-cpp/yaml.h>")

    def test_header_without_pragma_once(self):
        self.only_error({"allocator/a.h": "// What a is.\n"}, "no #pragma once")

    def test_header_without_first_comment(self):
        self.only_error({"allocator/a.h": "#pragma once\n"}, "must begin a comment")

    def test_a_call_that_is_awaited_in_a_condition(self):
        head = '#include "proxy/wire/w.h"\n'
        for wrong in ("if (co_await f(x)) return;", "while (!co_await f(x)) g();", "g(co_await a.f(x));",
                      "y = z && co_await f(x);", "if (auto y = co_await\n    f(x)) g();",
                      "co_return co_await f(x.error());", "y = co_await a->f(b,\n    x->error(), c);"):
            self.only_error({"proxy/wire/w.cpp": head + "{\n  " + wrong + "\n}\n"}, "name the task first")
        for right in ("if (z) co_await f(x);", "co_return co_await f(x);", "auto y = co_await a->f(x);",
                      "if (!co_await named) g();"):
            self.assertEqual(self.findings({"proxy/wire/w.cpp": head + "{\n  " + right + "\n}\n"}).errors, [])

    def test_banned_words(self):
        for text, word in (
            ("auto t = std::chrono::system_clock::now();", "system_clock::now"),
            ("void f() { std::cout << 1; }", "std::cout"),
            ("void f() { try { g(); } catch (...) {\n } }", "catch (...) { }"),
            ("// TO" "DO: later", "TO" "DO"),
        ):
            self.only_error({"allocator/a.cpp": '#include "allocator/a.h"\n' + text + "\n"},
                            f'allocator/a.cpp:2: "{word}"')

    def test_words_are_allowed_in_their_places(self):
        self.assertEqual(self.findings({
            "proxy/base/CMakeLists.txt": "layer(clock_steady.cpp)\n",
            "proxy/base/clock_steady.cpp": "auto t = std::chrono::system_clock::now();\n",
            "proxy/server/CMakeLists.txt": "layer(main.cpp)\n",
            "proxy/server/main.cpp": "int main() { std::cout << 1; }\n",
        }).errors, [])

    def test_source_that_nobody_compiles(self):
        self.only_error({"allocator/b.cpp": ""}, "allocator/b.cpp:1: no CMakeLists.txt lists")

    def test_source_listed_from_the_root_or_by_a_loop(self):
        self.assertEqual(self.findings({
            "tests/CMakeLists.txt":
                "add(x ${CMAKE_SOURCE_DIR}/other/o.cpp)\nforeach(n IN ITEMS p q)\nadd(${n}.cpp)\n",
            "other/o.cpp": "", "tests/p.cpp": "", "tests/q.cpp": "",
        }).errors, [])

    def test_listed_source_that_is_missing(self):
        self.only_error({"allocator/CMakeLists.txt": "layer(a.cpp\n  gone.cpp)\n"},
                        "allocator/CMakeLists.txt:2: gone.cpp does not exist")

    def test_header_that_nobody_includes(self):
        self.only_error({"allocator/b.h": "// B.\n#pragma once\n"},
                        "allocator/b.h:1: nothing includes")

    def test_long_line(self):
        self.only_error({"allocator/a.h": CLEAN["allocator/a.h"] + "//" + "x" * 119 + "\n"},
                        "allocator/a.h:3: 121 columns")

    def test_rooms_of_a_layer_include_those_before_them(self):
        files = {
            "proxy/exec/CMakeLists.txt": "layer(read/r.cpp core/c.cpp)\n",
            "proxy/exec/core/c.h": "// C.\n#pragma once\n",
            "proxy/exec/core/c.cpp": '#include "proxy/exec/core/c.h"\n',
            "proxy/exec/read/r.h": "// R.\n#pragma once\n",
            "proxy/exec/read/r.cpp":
                '#include "proxy/exec/read/r.h"\n#include "proxy/exec/core/c.h"\n',
        }
        self.assertEqual(self.findings(files).errors, [])
        self.only_error({**files, "proxy/exec/core/c.cpp": '#include "proxy/exec/core/c.h"\n'
                         '#include "proxy/exec/read/r.h"\n'},
                        "proxy/exec/core may not include proxy/exec/read")

    SERVICES = {
        "proxy/exec/CMakeLists.txt": "layer(read/r.cpp)\n",
        "proxy/exec/core/services.h": "// S.\n#pragma once\nMetrics& metrics;  // exec/core/metrics.h\n",
        "proxy/exec/core/metrics.h": "// M.\n#pragma once\n",
        "proxy/exec/core/shared.h":
            '// All.\n#pragma once\n#include "proxy/exec/core/services.h"\n'
            '#include "proxy/exec/core/metrics.h"\n',
        "proxy/exec/read/r.h": '// R.\n#pragma once\n#include "proxy/exec/core/metrics.h"\n',
        "proxy/exec/read/r.cpp": '#include "proxy/exec/read/r.h"\nauto m = context.shared.metrics.all;\n',
        "proxy/server/CMakeLists.txt": "layer(life/server.cpp)\n",
        "proxy/server/life/server.cpp": '#include "proxy/exec/core/shared.h"\n',
    }

    def test_a_file_includes_the_services_that_it_uses(self):
        self.assertEqual(self.findings(self.SERVICES).errors, [])
        self.only_error({**self.SERVICES, "proxy/exec/read/r.h": "// R.\n#pragma once\n"},
                        "proxy/exec/read/r.cpp:2: uses shared.metrics without including proxy/exec/core/metrics.h")

    def test_only_the_owner_includes_all_services(self):
        self.only_error({**self.SERVICES, "proxy/exec/read/r.cpp":
                         '#include "proxy/exec/read/r.h"\n#include "proxy/exec/core/shared.h"\n'},
                        "own all services")

    def test_readme_that_names_a_missing_file(self):
        for text in ("[x](gone.md)", "`allocator/gone.h`", "`./gone --flag`", "```\n./gone now\n```"):
            self.only_error({"README.md": text + "\n"}, "does not exist")

    def test_readme_names_are_looked_up_from_its_folder_and_from_the_root(self):
        self.assertEqual(self.findings({
            "allocator/README.md": "[a](a.h) [b](../README.md) `proxy/wire/w.h` [web](https://x.example)\n",
        }).errors, [])

    def test_a_document_has_a_most_of_lines(self):
        for path, most in (("README.md", 120), ("tests/README.md", 60), ("bench/README.md", 100),
                           ("conf/manual/memory.md", 250), ("proxy/README.md", 250),
                           ("allocator/README.md", 40), ("proxy/exec/core/README.md", 40)):
            self.assertEqual(self.findings({path: "x\n" * most}).errors, [])
            self.only_error({path: "x\n" * (most + 1)}, f"{most + 1} lines; at most {most}")

    def test_build_folders_are_not_looked_at(self):
        self.assertEqual(self.findings({"build/x.cpp": "", "build-1/y.h": ""}).errors, [])


if __name__ == "__main__":
    unittest.main()
