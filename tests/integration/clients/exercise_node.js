// node exercise_node.js URI DATABASE COLLECTION: prints one line, RESULT and the outcome as JSON.
const {MongoClient} = require('mongodb');
const {exercise} = require(process.env.EXERCISE);

async function main() {
  const [uri, database, collection] = process.argv.slice(2);
  const client = new MongoClient(uri, {serverSelectionTimeoutMS: 10000});
  await client.connect();
  try {
    const result = await exercise(client.db(database).collection(collection));
    console.log('RESULT ' + JSON.stringify(result));
  } finally {
    await client.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
