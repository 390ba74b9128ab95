# The worked examples of backends that settle by themselves, PHP (PDO, FPM) and Perl (DBI, CGI), as they stand in
# conf/examples with their configuration: order, outbox row and outcome are one, whoever dies.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(backends => [qw(cgi fpm)], start => 0);
my $pg = $t->pg;
my $root = $t->root;
my $examples = source_dir() . '/conf/examples';
$pg->do('CREATE ROLE shop LOGIN; GRANT idempotency_backend TO shop;' . slurp("$examples/orders.sql") . 'GRANT INSERT, SELECT ON orders TO shop');
# An order that is told to waits in the middle of its transaction.
$pg->do(<<'SQL');
CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END $$;
CREATE TRIGGER wait_for_test AFTER INSERT ON orders FOR EACH ROW WHEN (NEW.item = 'slow') EXECUTE FUNCTION wait_for_test();
SQL
mkdir "$root/shop";
chmod 0755, "$root/shop";
give("$root/shop");
spew("$root/shop/$_", slurp("$examples/$_"), 0755) for qw(orders.php orders.cgi);
my ($vhost) = slurp("$examples/transactional.conf") =~ /^<VirtualHost.*?>\n(.*)^<\/VirtualHost>/ms;
my %here = ('/srv/shop/' => "$root/shop/", '/run/php/php-fpm.sock' => $t->backend->{root} . '/fpm.sock', '/etc/apache2/shop.users' => "$root/users",
    'host=/run/postgresql;dbname=registry' => sprintf('host=%s;port=%d;dbname=%s', $pg->socket_dir, $pg->port, $pg->database));
$vhost =~ s/\Q$_\E/$here{$_}/g for keys %here;
$vhost =~ s/^ *ServerName.*\n//m;
$t->httpd->{config} = "IdempotencyLease 2s\nIdempotencyStoreTimeout 3s\n$vhost";
$t->httpd->start;
my $c = $t->client;

sub order { my ($place, $key, $item, $quantity) = @_; return $c->post($place, key => $key, body => sprintf '{"item":"%s","quantity":%d}', $item // 'book', $quantity // 2) }
sub orders { $pg->value("SELECT count(*) FROM orders WHERE operation = '$_[0]'") }
sub messages { $pg->value("SELECT count(*) FROM idempotency_outbox WHERE operation_id = '$_[0]' AND topic = 'order.made'") }
sub row { my ($key) = @_; return ($t->records("idem_key = '$key'"))[0] // {} }
sub stopped { my ($pid) = @_; kill STOP => $pid; return wait_for(sub { !grep { (eval { slurp($_) } // '') !~ /\) T / } glob "/proc/$pid/task/*/stat" }) }

for my $place ('/orders', '/php/orders') {
    subtest "$place: one transaction" => sub {
        my $key = fresh_key();
        my $first = order($place, $key);
        is($first->status, 201, 'ordered') or diag($first->body);
        my $operation = $first->operation;
        like($first->header('Location'), qr{^/orders/\d+\z}, 'with its place');
        my ($order) = $pg->query("SELECT * FROM orders WHERE operation = '$operation'");
        is("$order->{customer} $order->{item} $order->{quantity}", 'a book 2', 'the order is there');
        is($pg->value("SELECT convert_from(payload, 'UTF8')::jsonb ->> 'order' FROM idempotency_outbox WHERE operation_id = '$operation'"), $order->{id}, 'and the message about it');
        is(row($key)->{status}, 'SUCCEEDED', 'and the outcome');
        my $second = order($place, $key);
        is_replay($second, $first, 'the retry');
        is($second->header('Location'), $first->header('Location'), 'with its place');
        is(orders($operation) . messages($operation), 11, 'one of each');
        is($pg->value("SELECT count(*) FROM idempotency_outbox WHERE operation_id IN (SELECT operation_id FROM idempotency_records) AND tenant_id = 'localhost'"), $pg->value('SELECT count(*) FROM orders'), 'as many messages as orders');
    };

    subtest "$place: what cannot be ordered" => sub {
        my $key = fresh_key();
        is($c->post($place, key => $key, body => '{"item":"book"}')->status, 422, 'no quantity');
        ok($c->post($place, key => $key, body => '{"item":"book"}')->replayed, 'final');
        $key = fresh_key();
        my $first = order($place, $key, 'book', 5000);
        is($first->status, 500, 'the database refuses');
        is(orders($first->operation) . messages($first->operation), '00', 'nothing is there');
        $pg->do('ALTER TABLE orders DROP CONSTRAINT orders_quantity_check');
        my $second = order($place, $key, 'book', 5000);
        is($second->status, 201, 'free: the retry runs');
        is($second->operation, $first->operation, 'as the same operation');
        is(orders($second->operation) . messages($second->operation), 11, 'one of each');
        $pg->do('DELETE FROM orders WHERE quantity > 1000; ALTER TABLE orders ADD CONSTRAINT orders_quantity_check CHECK (quantity BETWEEN 1 AND 1000)');
        $pg->do("DELETE FROM idempotency_outbox WHERE operation_id = '@{[ $second->operation ]}'");
    };

    # its child is stopped past the lease, or killed; somebody takes over; then the old transaction comes to its end
    for my $how (qw(stopped killed)) {
        subtest "$place: its owner is $how in the middle of it" => sub {
            my $key = fresh_key();
            my $gate = $pg->session;
            $gate->run('SELECT pg_advisory_lock(1)');
            my $running = $c->send(POST => $place, key => $key, body => '{"item":"slow","quantity":1}');
            ok(wait_for(sub { $pg->value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'shop' AND wait_event = 'advisory'") }, 20), 'its transaction is open') or return;
            my ($owner) = $pg->query("SELECT o.pid, r.operation_id FROM idempotency_owners o JOIN idempotency_records r USING (owner) WHERE r.idem_key = '$key'");
            $how eq 'stopped' ? stopped($owner->{pid}) : kill KILL => $owner->{pid};
            problem(order($place, $key, 'slow', 1), 'in-progress', operation => 1);
            my ($taken, $second);
            # the order table knows each operation once: the new owner's insert waits for the old transaction
            ok(wait_for(sub { $taken = $c->send(POST => $place, key => $key, body => '{"item":"slow","quantity":1}'); wait_for(sub { row($key)->{owner_generation} == 2 }, 0.5) }, 20), 'after the lease a retry takes over');
            ok(wait_for(sub { $pg->value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'shop' AND wait_event_type = 'Lock'") == 2 }, 20), 'both transactions are open');
            $gate->run('SELECT pg_advisory_unlock(1)');
            $second = $taken->response;
            is($second->status, 201, 'the new owner orders') or diag($second->body);
            is($second->operation, $owner->{operation_id}, 'the same operation');
            kill CONT => $owner->{pid} if $how eq 'stopped';
            my $late = eval { $running->response };
            is_replay($late, $second, 'the late client') if $how eq 'stopped';
            is_replay(order($place, $key, 'slow', 1), $second, 'the retry');
            is(orders($second->operation) . messages($second->operation), 11, 'one order, one message: the late commit was rolled back');
            like($place =~ /php/ ? slurp($t->backend->{root} . '/php.log') : $t->httpd->log, qr/order: SQLSTATE IDEM1/, 'because its generation has passed');
        };
    }
}
is($pg->value('SELECT count(*) FROM idempotency_records WHERE status IN (\'RESERVED\', \'EXECUTING\', \'UNKNOWN\')'), 0, 'nothing is left open');
$t->httpd->expect_log(qr/IDEM0805/);
$t->httpd->allow_log(qr/order: SQLSTATE (?:IDEM1|23514)|AH01071|AH01215|exit signal Killed|AH00052|AH01265|AH02429|IDEM0401/);
$t->allow_pg_log(qr/generation|transaction is aborted|orders_quantity_check|connection to client lost|lock timeout|idempotency_/);
$t->finish;
