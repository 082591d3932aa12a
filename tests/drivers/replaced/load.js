// Node's part of the load: load.js URI NAME, until standard input ends. run_replaced says what each program does.
"use strict";
const { MongoClient } = require("mongodb");

const WORKERS = 4;
const total = { written: 0, finds: [], wrong: [], errors: [] };
let stopping = false;

async function work(client, name) {
  const collection = client.db("app").collection("load");
  for (let written = 0; !stopping; ++written) {
    const key = `${name}-${written}`;
    try {
      await collection.insertOne({ _id: key, by: name });
      ++total.written;
      const begun = Date.now(), timer = process.hrtime.bigint();
      const found = await collection.findOne({ _id: key });
      total.finds.push([begun, Number((process.hrtime.bigint() - timer) / 1000n)]);
      if (found === null) total.wrong.push(`${key} is not found`);
      if (written % 20 === 0) {
        const all = await collection.find({ by: name }, { batchSize: 50 }).limit(300).toArray();
        const ids = new Set(all.map((one) => one._id));
        if (ids.size !== all.length || all.length !== Math.min(written + 1, 300)) {
          total.wrong.push(`${name} has ${written + 1}, ${all.length} were read, ${ids.size} of them once`);
        }
      }
    } catch (error) {
      total.errors.push(`${error.name}: ${error.message}`.slice(0, 300));
    }
  }
}

async function main() {
  const [uri, name] = process.argv.slice(2);
  const client = await new MongoClient(uri, { minPoolSize: 10 }).connect();
  const working = [];
  for (let i = 0; i < WORKERS; ++i) working.push(work(client, `${name}${i}`));
  process.stdin.resume();
  process.stdin.on("end", () => { stopping = true; });
  console.log("begun");
  await Promise.all(working);
  await client.close();
  console.log(JSON.stringify(total));
}

main();
