# The rules that conf/examples/front-controller.conf has for a PHP application behind index.php, each with the answer
# that it is made for and with the one beside it that is an answer.
use strict;
use warnings;
use Idem::Test;

my @rules = slurp('conf/examples/front-controller.conf') =~ /^\s+(IdempotencyOutcome .*)$/mg;
cmp_ok(scalar @rules, '>=', 3, 'the example has its rules');
my $t = Idem::Test->new(backends => [qw(fpm)], config => protected({ by => 'fpm' }, '/orders', 'orders.create', @rules));
my $c = $t->client;
my $body = '{"amount":10}';

# The application answers like this at first, and does its work later.
sub free {
    my ($name, %behave) = @_;
    my $key = fresh_key();
    $t->backend->behave(%behave);
    is($c->post('/orders/1', key => $key, body => $body)->status, $behave{status}, "$name: the client sees it");
    is($t->record_count("idem_key = '$key'"), 0, "$name: no record is left");
    $t->backend->behave(status => 201);
    ran($t, 1, "$name, later", sub {
        my $first = $c->post('/orders/1', key => $key, body => $body);
        is($first->status, 201, "$name: the same request runs");
        is_replay($c->post('/orders/1', key => $key, body => $body), $first, $name);
    });
}

sub kept {
    my ($name, $want, %behave) = @_;
    my $key = fresh_key();
    $t->backend->behave(%behave);
    is($c->post('/orders/1', key => $key, body => $body)->status, $behave{status}, "$name: the client sees it");
    $t->backend->behave(status => 201);
    ran($t, 0, "$name, again", sub {
        my $res = $c->post('/orders/1', key => $key, body => $body);
        $want eq 'replay' ? is($res->status . ' ' . ($res->replayed ? 'replayed' : ''), "$behave{status} replayed", "$name: replayed") : problem($res, $want);
    });
}

free('maintenance', status => 503, header => 'Retry-After: 120');
kept('503 without a time', 'outcome-unknown', status => 503);
free('login', status => 302, header => "Location: $_") for '/login', 'https://shop.example.com/login?back=1';
kept('a redirect to the result', 'replay', status => 303, header => 'Location: https://shop.example.com/orders/77');
free('419', status => 419);
kept('422', 'replay', status => 422);
$t->finish;
