// Go's part of the load: load URI NAME, until standard input ends. run_replaced says what each program does.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
)

const workers = 4

type result struct {
	Written int        `json:"written"`
	Finds   [][2]int64 `json:"finds"`
	Wrong   []string   `json:"wrong"`
	Errors  []string   `json:"errors"`
}

type document struct {
	ID string `bson:"_id"`
	By string `bson:"by"`
}

func round(collection *mongo.Collection, name string, written int, into *result) error {
	ctx := context.Background()
	key := fmt.Sprintf("%s-%d", name, written)
	if _, err := collection.InsertOne(ctx, document{key, name}); err != nil {
		return err
	}
	into.Written++
	begun := time.Now()
	var found document
	err := collection.FindOne(ctx, bson.M{"_id": key}).Decode(&found)
	into.Finds = append(into.Finds, [2]int64{begun.UnixMilli(), time.Since(begun).Microseconds()})
	if err == mongo.ErrNoDocuments {
		into.Wrong = append(into.Wrong, key+" is not found")
	} else if err != nil {
		return err
	}
	if written%20 != 0 {
		return nil
	}
	cursor, err := collection.Find(ctx, bson.M{"by": name}, options.Find().SetBatchSize(50).SetLimit(300))
	if err != nil {
		return err
	}
	var all []document
	if err := cursor.All(ctx, &all); err != nil {
		return err
	}
	ids := map[string]bool{}
	for _, one := range all {
		ids[one.ID] = true
	}
	if len(ids) != len(all) || len(all) != min(written+1, 300) {
		into.Wrong = append(into.Wrong, fmt.Sprintf("%s has %d, %d were read, %d of them once", name, written+1, len(all), len(ids)))
	}
	return nil
}

func main() {
	client, err := mongo.Connect(context.Background(), options.Client().ApplyURI(os.Args[1]).SetMinPoolSize(10))
	if err != nil {
		panic(err)
	}
	collection := client.Database("app").Collection("load")
	var stopping atomic.Bool
	var working sync.WaitGroup
	results := make([]result, workers)
	for i := range results {
		working.Add(1)
		go func() {
			defer working.Done()
			name := fmt.Sprintf("%s%d", os.Args[2], i)
			for written := 0; !stopping.Load(); written++ {
				if err := round(collection, name, written, &results[i]); err != nil {
					results[i].Errors = append(results[i].Errors, fmt.Sprintf("%T: %.250v", err, err))
				}
			}
		}()
	}
	fmt.Println("begun")
	_, _ = io.ReadAll(os.Stdin)
	stopping.Store(true)
	working.Wait()
	total := result{Finds: [][2]int64{}, Wrong: []string{}, Errors: []string{}}
	for _, one := range results {
		total.Written += one.Written
		total.Finds = append(total.Finds, one.Finds...)
		total.Wrong = append(total.Wrong, one.Wrong...)
		total.Errors = append(total.Errors, one.Errors...)
	}
	_ = json.NewEncoder(os.Stdout).Encode(total)
}
